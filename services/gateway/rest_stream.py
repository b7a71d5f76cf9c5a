"""Event streams of generations, as HTTP bodies."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeAlias

from google.api import httpbody_pb2

from services.gateway.events import Finished, Heartbeat, Numbered
from services.gateway.openai_response import DONE, PING
from services.gateway.rest_answers import stream_body
from services.gateway.rest_form import Chunks

_Bodies: TypeAlias = AsyncGenerator[httpbody_pb2.HttpBody, None]
_Events: TypeAlias = AsyncGenerator[Numbered, None]


async def streamed(events: _Events, chunks: Chunks, was_accepted: bool = False) -> _Bodies:
    """The stream of one call; pings only once the generation was accepted. Raises what it failed of."""
    async with aclosing(events):
        async for numbered in events:
            event = numbered.event
            if isinstance(event, Heartbeat):
                if was_accepted:
                    yield stream_body(PING)
                continue
            if isinstance(event, Finished):
                yield stream_body(b"".join(chunks.last(event)))
                return
            was_accepted = True
            data = chunks.of(numbered)
            if data:
                yield stream_body(data)


async def resumed(events: _Events, chunks: Chunks, after: int) -> _Bodies:
    """The same for a reader that comes back: every event with its number, so that it can come back again.

    The first thing is a comment that tells the state. What the terminal event becomes has its number at the very end
    only: a reader that has a part of it gets all of it once more.
    """
    async with aclosing(events):
        async for numbered in events:
            event = numbered.event
            if isinstance(event, Heartbeat):
                yield stream_body(b": %s\n" % event.state.value.lower().encode())
                continue
            if isinstance(event, Finished):
                *ends, done = chunks.last(event)
                before = b"".join(_identified(after, data) for data in ends)
                yield stream_body(before + _identified(numbered.sequence, done))
                return
            after = numbered.sequence
            data = chunks.of(numbered)
            if data:
                yield stream_body(_identified(after, data))
    yield stream_body(DONE)  # it had everything


def _identified(sequence: int, data: bytes) -> bytes:
    return b"id: %d\n" % sequence + data
