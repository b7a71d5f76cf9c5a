"""Log-probabilities of one token as they travel, packed: they may wait in numbers, and most are only handed on."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from hotline.v1 import generation_pb2

from services.gateway.events import PositionLogprobs

_Message: TypeAlias = generation_pb2.PositionLogprobs


class PackedLogprobs:
    """See events.PositionLogprobs: some ten bytes for each token that it names; read anew at each look."""

    __slots__ = ("_bytes",)

    def __init__(self, message: _Message) -> None:
        # Not the message itself: it would keep the whole answer alive that it came in.
        self._bytes = message.SerializeToString()

    @property
    def sampled(self) -> generation_pb2.TokenLogprob:
        """The token that stands there."""
        return _Message.FromString(self._bytes).sampled

    @property
    def top(self) -> Sequence[generation_pb2.TokenLogprob]:
        """The likeliest ones, best first."""
        return _Message.FromString(self._bytes).top

    def write(self, message: _Message) -> None:
        """Set an empty message to it."""
        message.ParseFromString(self._bytes)


def packed(messages: Iterable[_Message]) -> tuple[PositionLogprobs, ...]:
    """In order."""
    return tuple(map(PackedLogprobs, messages))


def messages(positions: Iterable[PositionLogprobs | None]) -> list[_Message]:
    """In order; empty ones for None."""
    return list(map(_message, positions))


def _message(position: PositionLogprobs | None) -> _Message:
    message = _Message()
    if isinstance(position, PackedLogprobs):
        position.write(message)
    return message
