"""The grammar of an output that has to call a tool: JSON, as vLLM forces it (get_json_schema_from_tools)."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from services.gateway.tools import ToolChoice
from services.runtime.errors import InvalidArgumentError
from services.runtime.structured_output import check_text

_ANY_OBJECT = {"type": "object", "properties": {}}
_DEFINITIONS = "$defs"


def forced_schema(
    field: str, tools: Sequence[Mapping[str, Any]], choice: ToolChoice | None, in_parallel: bool
) -> str | None:
    """The JSON Schema of the whole output, as JSON; None where the model need not call anything.

    Raises InvalidArgumentError where the tools make too large a schema, or define the same thing twice.

    Args:
        field: what the client calls the tools.
        tools: checked.
        in_parallel: whether there may be more than one call.
    """
    if choice is None or choice.kind not in ("required", "function"):
        return None
    if choice.kind == "function":
        schema = next(
            _parameters(tool) for tool in tools if tool["function"]["name"] == choice.function
        )
    else:
        schema = _array(field, tools, in_parallel)
    text = msgspec.json.encode(schema).decode()
    check_text(field, "json_schema", text)
    return text


def _array(field: str, tools: Sequence[Mapping[str, Any]], in_parallel: bool) -> Mapping[str, Any]:
    calls, definitions = [], dict[str, Any]()
    for index, tool in enumerate(tools):
        parameters = dict(_parameters(tool))
        own = parameters.pop(_DEFINITIONS, None) or {}
        place = f"{field}[{index}].function.parameters.{_DEFINITIONS}"
        if not isinstance(own, Mapping):
            raise InvalidArgumentError(place, own, "an object")
        for name, definition in own.items():
            if definitions.setdefault(name, definition) != definition:
                raise InvalidArgumentError(
                    f"{place}.{name}",
                    definition,
                    "the same for all tools, where a call is required",
                )
        name = {"type": "string", "enum": [tool["function"]["name"]]}
        calls.append(
            {
                "properties": {"name": name, "parameters": parameters},
                "required": ["name", "parameters"],
            }
        )
    return {
        "type": "array",
        "minItems": 1,
        **({} if in_parallel else {"maxItems": 1}),
        "items": {"type": "object", "anyOf": calls},
        **({_DEFINITIONS: definitions} if definitions else {}),
    }


def _parameters(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters: Mapping[str, Any] = tool["function"].get("parameters") or _ANY_OBJECT
    return parameters
