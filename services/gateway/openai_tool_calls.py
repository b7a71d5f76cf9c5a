"""Tool calls in chat completion bodies, as OpenAI's clients read them."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from services.gateway.events import ToolCall


class FunctionDelta(msgspec.Struct, omit_defaults=True):
    """What one chunk adds to a call; the name stands in its first piece."""

    arguments: str
    name: str | None = None


class CallDelta(msgspec.Struct, omit_defaults=True):
    """A piece of a call; id and type stand in its first piece."""

    index: int
    function: FunctionDelta
    id: str | None = None
    type: Literal["function"] | None = None


class CalledFunction(msgspec.Struct):
    """What is called, and with what; arguments are JSON in a string."""

    name: str
    arguments: str


class Call(msgspec.Struct):
    """A whole call."""

    id: str
    type: Literal["function"]
    function: CalledFunction


def call_delta(call: ToolCall) -> CallDelta:
    """A piece for a stream."""
    function = FunctionDelta(call.arguments, call.name or None)
    kind: Literal["function"] | None = "function" if call.name else None
    return CallDelta(call.index, function, call.id or None, kind)


def whole_calls(pieces: Sequence[ToolCall]) -> list[Call]:
    """The calls of one choice, in order."""
    calls: dict[int, Call] = {}
    for piece in pieces:
        call = calls.setdefault(
            piece.index, Call(piece.id, "function", CalledFunction(piece.name, ""))
        )
        call.function.arguments += piece.arguments
    return [calls[index] for index in sorted(calls)]
