"""Tool calls in a conversation's history, as a client sends them back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from services.gateway.json_tree import is_absent, read_tree
from services.runtime.errors import InvalidArgumentError

MAX_CALLS, MAX_CALLS_BYTES = 64, 128 * 1024
_MAX_NAME_BYTES = 128


class PastFunction(msgspec.Struct):
    """What was called; arguments are JSON in a string, or an empty string."""

    name: str
    arguments: str


class PastCall(msgspec.Struct):
    """One of a message's `tool_calls`."""

    id: str
    function: PastFunction
    type: Literal["function"] = "function"


@dataclass(frozen=True)
class ReadCall:
    """A call of the past."""

    id: str
    name: str
    arguments: Mapping[str, Any]


def read_calls(field: str, raw: msgspec.Raw) -> list[ReadCall]:
    """A message's `tool_calls`; none where they are absent. Raises InvalidArgumentError naming the one at fault."""
    if is_absent(raw):
        return []
    calls: list[PastCall] = read_tree(field, raw, list[PastCall], MAX_CALLS_BYTES)
    if len(calls) > MAX_CALLS:
        raise InvalidArgumentError(field, f"{len(calls)} calls", f"at most {MAX_CALLS} calls")
    return [_read(f"{field}[{index}]", call) for index, call in enumerate(calls)]


def _read(field: str, call: PastCall) -> ReadCall:
    for name, value in (("id", call.id), ("function.name", call.function.name)):
        if not 1 <= len(value.encode("utf-8", "replace")) <= _MAX_NAME_BYTES:
            raise InvalidArgumentError(
                f"{field}.{name}", value, f"1 to {_MAX_NAME_BYTES} bytes of UTF-8"
            )
    return ReadCall(call.id, call.function.name, _arguments(f"{field}.function.arguments", call))


def _arguments(field: str, call: PastCall) -> dict[str, Any]:
    text = call.function.arguments.strip()
    if not text:
        return {}
    try:
        raw = msgspec.Raw(text.encode())
        msgspec.json.decode(raw, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeError):
        raise InvalidArgumentError(field, text, "a JSON object, in a string") from None
    arguments: dict[str, Any] = read_tree(field, raw, dict[str, Any], MAX_CALLS_BYTES)
    return arguments
