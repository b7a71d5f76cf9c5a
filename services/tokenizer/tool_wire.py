"""Tools, and other free-form objects, out of protobuf, whose objects have no order."""

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import struct_pb2
from hotline.v1 import conversation_pb2

from services.tokenizer.tool_calls import Choice, ToolUse

_ORDER = ("type", "function", "name", "description", "parameters", "properties", "required")
"""How OpenAI tools are written, and so how models have seen them; whatever else there is follows by name."""


def tool_use(
    tools: Sequence[struct_pb2.Struct], choice: conversation_pb2.ToolChoice
) -> ToolUse | None:
    """The tools that an output may call; None where there are none."""
    if not tools or choice.none:
        return None
    plain = [plain_tool(tool) for tool in tools]
    if choice.function:
        return ToolUse(plain, Choice.NAMED, choice.function)
    return ToolUse(plain, Choice.REQUIRED if choice.required else Choice.AUTOMATIC)


def plain_tool(tool: struct_pb2.Struct) -> dict[str, Any]:
    """A tool, in the order that templates show: the same for the same tool always, so that prefixes can be cached."""
    ordered: dict[str, Any] = _ordered(plain_struct(tool))
    return ordered


def _ordered(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _ordered(value[name]) for name in sorted(value, key=_place)}
    return [_ordered(item) for item in value] if isinstance(value, list) else value


def _place(name: str) -> tuple[int, str]:
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)


def plain_struct(struct: struct_pb2.Struct) -> dict[str, Any]:
    """An object, its names in order, since protobuf keeps none; whole numbers are integers."""
    return {name: _plain(struct.fields[name]) for name in sorted(struct.fields)}


def _plain(value: struct_pb2.Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return plain_struct(value.struct_value)
    if kind == "list_value":
        return [_plain(item) for item in value.list_value.values]
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() else number
    return None if kind in (None, "null_value") else getattr(value, kind)
