"""Tools that a model may call: what clients may send. See parameter_table.py."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from services.gateway.json_tree import read_tree
from services.gateway.parameter_kinds import JsonSchema
from services.runtime.errors import InvalidArgumentError

MAX_TOOLS, MAX_TOOLS_BYTES = 128, 128 * 1024
_MAX_CHOICE_BYTES = 1024
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NAME_WORDS = "1 to 64 characters of [A-Za-z0-9_-]"
_NAME_SCHEMA = {"type": "string", "pattern": f"^{_NAME.pattern}$"}


@dataclass(frozen=True)
class ToolChoice:
    """Which tools the model may, or has to, call; the kinds are those of hotline.v1.ToolChoice."""

    kind: Literal["automatic", "none", "required", "function"]
    function: str = ""
    """With `function`: its name."""
    said: str = field(default="", compare=False)
    """The client's own word for the kind, where it is another one."""


def check_tools(field: str, tools: Sequence[Mapping[str, Any]]) -> None:
    """Raises InvalidArgumentError naming what no OpenAI tool object has.

    Args:
        field: what the client calls the list.
        tools: free-form JSON.
    """
    if len(tools) > MAX_TOOLS:
        raise InvalidArgumentError(field, f"{len(tools)} tools", f"at most {MAX_TOOLS} tools")
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        name = _checked(f"{field}[{index}]", tool)
        if name in seen:
            raise InvalidArgumentError(
                f"{field}[{index}].function.name", name, "of no other tool: names are unique"
            )
        seen.add(name)


def _checked(field: str, tool: Mapping[str, Any]) -> str:
    """The tool's name."""
    if tool.get("type") != "function":
        raise InvalidArgumentError(f"{field}.type", tool.get("type"), "`function`")
    function = tool.get("function")
    if not isinstance(function, Mapping):
        raise InvalidArgumentError(f"{field}.function", function, "an object")
    name, description = function.get("name"), function.get("description")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidArgumentError(f"{field}.function.name", name, _NAME_WORDS)
    if not isinstance(description, str | None):
        raise InvalidArgumentError(f"{field}.function.description", description, "a string")
    parameters = function.get("parameters")
    if not isinstance(parameters, Mapping | None):
        raise InvalidArgumentError(
            f"{field}.function.parameters", parameters, "an object: a JSON Schema"
        )
    return name


def check_choice(
    field: str, choice: ToolChoice | None, tools: Sequence[Mapping[str, Any]], tools_field: str
) -> None:
    """Raises InvalidArgumentError for a choice among no tools, or of one that is not there."""
    if choice is None or choice.kind == "none":
        return
    shown = choice.function if choice.kind == "function" else choice.said or choice.kind
    if not tools:
        raise InvalidArgumentError(field, shown, f"absent or none where {tools_field} is absent")
    names = [tool["function"]["name"] for tool in tools]
    if choice.kind == "function" and choice.function not in names:
        raise InvalidArgumentError(field, shown, f"the name of one of {tools_field}")


@dataclass(frozen=True)
class Tools:
    """OpenAI's `tools`."""

    type: Any = msgspec.Raw
    words: str = (
        f"a list of up to {MAX_TOOLS} objects of at most {MAX_TOOLS_BYTES} bytes of JSON: `type` is `function`, "
        f"`function` has `name` ({_NAME_WORDS}, each once), `description` and `parameters` (a JSON Schema)"
    )

    @property
    def schema(self) -> JsonSchema:
        """See Kind."""
        properties = {
            "name": _NAME_SCHEMA,
            "description": {"type": ["string", "null"]},
            "parameters": {"type": ["object", "null"]},
        }
        function = {"type": "object", "required": ["name"], "properties": properties}
        tool = {
            "type": "object",
            "required": ["type", "function"],
            "properties": {"type": {"const": "function"}, "function": function},
        }
        return {"type": "array", "items": tool, "maxItems": MAX_TOOLS}

    def read(self, field: str, value: Any) -> list[dict[str, Any]]:
        """See Kind."""
        tools: list[dict[str, Any]] = read_tree(field, value, list[dict[str, Any]], MAX_TOOLS_BYTES)
        check_tools(field, tools)
        return tools


class NamedFunction(msgspec.Struct):
    """`tool_choice.function`."""

    name: str


class NamedTool(msgspec.Struct):
    """`tool_choice` as an object."""

    type: Literal["function"]
    function: NamedFunction


_CHOICES: Mapping[str, ToolChoice] = {
    "auto": ToolChoice("automatic", said="auto"),
    "none": ToolChoice("none"),
    "required": ToolChoice("required"),
}


@dataclass(frozen=True)
class ToolChoices:
    """OpenAI's `tool_choice`."""

    type: Any = msgspec.Raw
    words: str = '`auto`, `none`, `required`, or `{"type": "function", "function": {"name": ...}}`'

    @property
    def schema(self) -> JsonSchema:
        """See Kind."""
        function = {"type": "object", "required": ["name"], "properties": {"name": _NAME_SCHEMA}}
        named = {
            "type": "object",
            "required": ["type", "function"],
            "properties": {"type": {"const": "function"}, "function": function},
        }
        return {"anyOf": [{"enum": list(_CHOICES)}, named]}

    def read(self, field: str, value: Any) -> ToolChoice:
        """See Kind."""
        choice: str | NamedTool = read_tree(field, value, str | NamedTool, _MAX_CHOICE_BYTES)
        if isinstance(choice, NamedTool):
            name = choice.function.name
            if not _NAME.fullmatch(name):
                raise InvalidArgumentError(f"{field}.function.name", name, _NAME_WORDS)
            return ToolChoice("function", name)
        if choice not in _CHOICES:
            raise InvalidArgumentError(field, choice, self.words)
        return _CHOICES[choice]
