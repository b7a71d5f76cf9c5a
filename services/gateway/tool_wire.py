"""Tools in hotline.v1: made of a REST request's parameters, and checked where a native client made them."""

import json
from typing import Any

from google.protobuf import json_format
from hotline.v1 import conversation_pb2, inference_pb2

from services.gateway.forced_tools import forced_schema
from services.gateway.tools import ToolChoice, check_choice, check_tools
from services.runtime.errors import InvalidArgumentError

_TOOLS, _CHOICE = "render.tools", "render.tool_choice"
_FORM = "sampling.structured_output"


def tool_use(
    render: conversation_pb2.RenderOptions,
) -> conversation_pb2.RenderOptions | None:
    """The options, where an output may call their tools; else None."""
    return render if render.tools and not render.tool_choice.none else None


def tool_choice(choice: ToolChoice) -> conversation_pb2.ToolChoice:
    """A choice for the tokenizer."""
    if choice.kind == "function":
        return conversation_pb2.ToolChoice(function=choice.function)
    message = conversation_pb2.ToolChoice()
    setattr(message, choice.kind, True)
    return message


def check_render_tools(render: conversation_pb2.RenderOptions) -> None:
    """Raises InvalidArgumentError for tools that are none, or a choice that does not fit them."""
    tools = _tools(render)
    check_tools(_TOOLS, tools)
    check_choice(_CHOICE, _choice(render), tools, _TOOLS)


def force_tools(request: inference_pb2.GenerateRequest) -> dict[str, str]:
    """Put the grammar of a call that has to be into `sampling`; returns what errors call that field then.

    Raises InvalidArgumentError where there is another grammar already.
    """
    schema = forced_schema(_TOOLS, _tools(request.render), _choice(request.render), True)
    if schema is None:
        return {}
    if request.sampling.HasField("structured_output"):
        raise InvalidArgumentError(
            _CHOICE, "set", f"none or automatic where {_FORM} is set: at most one constraint"
        )
    request.sampling.structured_output.json_schema = schema
    return {f"{_FORM}.json_schema": _TOOLS}


def _tools(render: conversation_pb2.RenderOptions) -> list[dict[str, Any]]:
    try:
        # Sorted: protobuf's objects have no order, and the grammar's should not change from call to call.
        return [
            json.loads(json_format.MessageToJson(tool, sort_keys=True)) for tool in render.tools
        ]
    except (ValueError, json_format.SerializeToJsonError):
        raise InvalidArgumentError(
            _TOOLS, "<no number>", "made of numbers that are neither infinite nor NaN"
        ) from None


def _choice(render: conversation_pb2.RenderOptions) -> ToolChoice | None:
    kind = render.tool_choice.WhichOneof("choice")
    if kind is None:
        return None
    if not getattr(render.tool_choice, kind):
        raise InvalidArgumentError(f"{_CHOICE}.{kind}", False, "true, or not set")
    return ToolChoice(kind, render.tool_choice.function)
