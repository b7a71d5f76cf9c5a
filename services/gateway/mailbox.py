"""Between a generation and its reader: pieces wait here, and are merged only while the reader is slow."""

import asyncio

from services.gateway.events import Event, Failed, Finished, Numbered, Reasoning, Text


class Mailbox:
    """A one-reader mailbox of numbered events.

    `put` never waits: what it may hold is bounded by the generation's max_tokens, since neighbouring text of one
    choice becomes one event. A reader that keeps up gets every piece by itself, the first one at once.
    """

    def __init__(self) -> None:
        self._events: list[Numbered] = []
        self._filled = asyncio.Event()
        self._sequence = 0
        self._closed = False

    def put(self, event: Event) -> None:
        """Append an event; after the terminal one nothing is taken any more."""
        if self._closed:
            return
        self._closed = isinstance(event, Finished | Failed)
        self._sequence += 1
        if self._events:
            merged = _merge(self._events[-1].event, event)
            if merged is not None:
                self._events[-1] = Numbered(self._sequence, merged)
                return
        self._events.append(Numbered(self._sequence, event))
        self._filled.set()

    async def take(self) -> list[Numbered]:
        """Everything that waits, at least one event; waits for it as long as the generation lives."""
        await self._filled.wait()
        events, self._events = self._events, []
        self._filled.clear()
        return events


def _merge(before: Event, after: Event) -> Event | None:
    """One event for two neighbours, or None where they must stay two."""
    if isinstance(before, Text) and isinstance(after, Text):
        if before.choice_index == after.choice_index:
            return Text(before.choice_index, before.text + after.text)
    elif (
        isinstance(before, Reasoning)
        and isinstance(after, Reasoning)
        and before.choice_index == after.choice_index
    ):
        return Reasoning(before.choice_index, before.text + after.text)
    return None
