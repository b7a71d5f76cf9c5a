"""Which pieces of tool calls a reader has, in case the text they are cut from has to be rebuilt."""

from collections.abc import Sequence
from dataclasses import replace

from services.gateway.events import ToolCall


class ToldCalls:
    """A rebuilt text makes the same calls again, with other ids: of each, the reader has the beginning already."""

    def __init__(self) -> None:
        self._lengths: dict[int, int] = {}
        """Call -> characters of its arguments that the reader has."""
        self._skip: dict[int, int] = {}

    def again(self) -> None:
        """All of them will come once more."""
        self._skip = dict(self._lengths)

    def new(self, calls: Sequence[ToolCall]) -> Sequence[ToolCall]:
        """The part of `calls`, the next ones that came, that the reader does not have."""
        if not self._skip:
            told = calls
        else:
            told = [new for call in calls if (new := self._unknown_part(call)) is not None]
        for call in told:
            self._lengths[call.index] = self._lengths.get(call.index, 0) + len(call.arguments)
        return told

    def _unknown_part(self, call: ToolCall) -> ToolCall | None:
        if call.index not in self._skip:
            return call
        known = min(self._skip[call.index], len(call.arguments))
        self._skip[call.index] -= known
        arguments = call.arguments[known:]
        return replace(call, id="", name="", arguments=arguments) if arguments else None
