"""Between a generation and its reader: pieces wait here, and are merged only while the reader is slow."""

import asyncio
from dataclasses import replace

from services.gateway.events import Event, Failed, Finished, Numbered, Reasoning, Text, ToolCall
from services.gateway.observer import EventSink, ignore

MERGED_LOGPROBS = 256
"""Positions in one event: with 20 likeliest tokens each, that is some 100 KiB."""


class Mailbox:
    """A one-reader mailbox of numbered events.

    `put` never waits: what it may hold is bounded by the generation's max_tokens, since neighbouring text of one
    choice becomes one event, as long as it has no more than MERGED_LOGPROBS log-probabilities. A reader that keeps up gets every piece by itself, the first one at once.

    Args:
        observe: told of every event that is taken.
    """

    def __init__(self, observe: EventSink = ignore) -> None:
        self._observe = observe
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
            merged = _merge(self._events[-1].event, event)
            if merged is not None:
                self._events[-1] = Numbered(self._sequence, merged)
                return
        self._events.append(Numbered(self._sequence, event))
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def take(self) -> list[Numbered]:
        """Everything that waits, at least one event; waits for it as long as the generation lives."""
        if not self._events:
            # A bare future: this is done for every token, and an Event costs twice as much.
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        events, self._events = self._events, []
        return events


def _merge_texts(before: Text, after: Text) -> Text | None:
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
    ):
        return Reasoning(before.choice_index, before.text + after.text)
    elif (
        isinstance(before, ToolCall)
        and isinstance(after, ToolCall)
        and (before.choice_index, before.index) == (after.choice_index, after.index)
    ):
        return replace(before, arguments=before.arguments + after.arguments)
    return None
