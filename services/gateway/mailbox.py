"""Between a generation and its reader: pieces wait here, and are merged only while the reader is slow."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from services.gateway.event_size import size_bytes
from services.gateway.events import Event, Failed, Finished, Numbered, Reasoning, Text, ToolCall
from services.gateway.observer import EventSink, ignore

MERGED_LOGPROBS = 256
"""Positions in one event: with 20 likeliest tokens each, that is some 100 KiB."""
MERGED_CHARACTERS = 16 * 1024
"""An event that has so many is not made longer: every piece would copy it."""


class Outlet(Protocol):
    """Where a generation puts what happens to it."""

    def put(self, event: Event) -> None:
        """Append an event; after the terminal one nothing is taken any more. Never waits."""


class Mailbox:
    """A one-reader mailbox of numbered events.

    `put` never waits: what it may hold is bounded by the generation's max_tokens, since neighbouring text of one
    choice becomes one event, as long as it has no more than MERGED_LOGPROBS log-probabilities; and by `overflow`. A reader that keeps up gets every piece by itself, the first one at once.

    Args:
        observe: told of every event that is taken.
        max_unread_bytes: what may wait for the reader beside one event.
        overflow: called at every event beyond that.
    """

    def __init__(
        self,
        observe: EventSink = ignore,
        max_unread_bytes: float = math.inf,
        overflow: Callable[[], None] = lambda: None,
    ) -> None:
        self._observe = observe
        self._max_unread_bytes, self._overflow = max_unread_bytes, overflow
        self._unread_bytes = 0
        self._events: list[Numbered] = []
        self._reader: asyncio.Future[None] | None = None
        self._sequence = 0
        self._closed = False

    def put(self, event: Event) -> None:
        """Append an event; after the terminal one nothing is taken any more."""
        if self._closed:
            return
        self._closed = isinstance(event, Finished | Failed)
        self._observe(event)
        self._sequence += 1
        if self._events:
            self._wait(event)
            return
        self._events.append(Numbered(self._sequence, event))
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def take(self) -> list[Numbered]:
        """Everything that waits; waits for one event as long as the generation lives, or for `wake`."""
        if not self._events:
            # A bare future: this is done for every token, and an Event costs twice as much.
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        events, self._events = self._events, []
        self._unread_bytes = 0
        return events

    def wake(self) -> None:
        """Let a reader's `take` return, with nothing."""
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _wait(self, event: Event) -> None:
        merged = _merge(self._events[-1].event, event)
        if merged is None:
            self._events.append(Numbered(self._sequence, event))
        else:
            self._events[-1] = Numbered(self._sequence, merged)
        self._unread_bytes += size_bytes(event)
        if self._unread_bytes > self._max_unread_bytes and not self._closed:
            self._overflow()


def _merge_texts(before: Text, after: Text) -> Text | None:
    if len(before.text) >= MERGED_CHARACTERS:
        return None
    if before.logprobs or after.logprobs:
        logprobs = (*before.logprobs, *after.logprobs)
        if len(logprobs) > MERGED_LOGPROBS:
            return None
        return Text(before.choice_index, before.text + after.text, logprobs)
    return Text(before.choice_index, before.text + after.text)


def _merge(before: Event, after: Event) -> Event | None:
    """One event for two neighbours, or None where they must stay two."""
    if isinstance(before, Text) and isinstance(after, Text):
        if before.choice_index == after.choice_index:
            return _merge_texts(before, after)
    elif (
        isinstance(before, Reasoning)
        and isinstance(after, Reasoning)
        and before.choice_index == after.choice_index
        and len(before.text) < MERGED_CHARACTERS
    ):
        return Reasoning(before.choice_index, before.text + after.text)
    elif (
        isinstance(before, ToolCall)
        and isinstance(after, ToolCall)
        and (before.choice_index, before.index) == (after.choice_index, after.index)
    ):
        return replace(before, arguments=before.arguments + after.arguments)
    return None
