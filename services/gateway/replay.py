"""Between a generation and its readers, who may go and come back: what they had is kept, as much of it as fits."""

import asyncio
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from services.gateway.events import (
    Accepted,
    Event,
    Failed,
    Finished,
    Numbered,
    Reasoning,
    State,
    Text,
    ToolCall,
)
from services.gateway.observer import EventSink, ignore
from services.gateway.progress import state_after
from services.gateway.replay_run import Run, Single
from services.runtime.errors import (
    CancelledByPeerError,
    GenerationExpiredError,
    InvalidArgumentError,
)


@dataclass(frozen=True)
class ReplayLimits:
    """How much of one generation may be kept."""

    max_replay_bytes: int = 1024 * 1024
    """Of what some reader has had; the oldest is dropped first."""
    max_unread_bytes: int = 1024 * 1024
    """Of what no reader has had."""


class Replay:
    """The numbered events of one generation, for any number of readers.

    Neighbouring pieces of one text are merged as long as no reader has the first one; later they can be cut between
    them. `put` never waits.

    Args:
        observe: told of every event that is put.
        overflow: called once, when max_unread_bytes is passed.
    """

    def __init__(
        self,
        limits: ReplayLimits | None = None,
        observe: EventSink = ignore,
        overflow: Callable[[], None] = lambda: None,
    ) -> None:
        self._limits, self._observe, self._overflow = limits or ReplayLimits(), observe, overflow
        self._entries: list[Run | Single] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._delivered = self._dropped = 0
        self._unread_bytes = 0
        self._dropped_characters: dict[int, int] = {}
        self._overflown = False
        self.sequence = 0
        """Of the last event; 0: there was none."""
        self.size_bytes = 0
        self.state = State.QUEUED
        self.was_accepted = False
        self.end: Finished | Failed | None = None
        """The terminal event."""
        self.first_sequences: dict[int, int] = {}
        """Choice -> number of the first piece of its output."""

    def put(self, event: Event) -> None:
        """Append an event; after the terminal one nothing is taken any more."""
        if self.end is not None:
            return
        self._observe(event)
        self.sequence += 1
        last = self._entries[-1] if self._entries else None
        if isinstance(event, Text | Reasoning | ToolCall):
            if isinstance(last, Run) and last.takes(event):
                merged = last.last > self._delivered
                self._grew(last.append(self.sequence, event, merged))
            else:
                self.first_sequences.setdefault(event.choice_index, self.sequence)
                self.state = state_after(self.state, event)
                self._add(Run(self.sequence, event))
        else:
            self.state = state_after(self.state, event)
            if isinstance(event, Finished | Failed):
                self.end = event
            elif isinstance(event, Accepted):
                self.was_accepted = True
            self._add(Single(self.sequence, event))
        self._wake()

    def reader(self, after: int) -> "Reader":
        """One that has everything up to `after`. Raises as `check` does."""
        self.check(after)
        return Reader(self, after)

    def check(self, after: int) -> None:
        """Whether reading can go on after this number.

        Raises InvalidArgumentError for one that no event had, GenerationExpiredError where what follows is not kept.
        """
        if after > self.sequence:
            raise InvalidArgumentError("after_sequence", after, f"at most {self.sequence}")
        if after < self._dropped:
            raise GenerationExpiredError(
                f"after_sequence: what followed {after} is not kept any more; what followed {self._dropped} is.",
                metadata={"field": "after_sequence"},
            )
        if after not in (0, self._dropped) and not self._holds(after):
            raise InvalidArgumentError("after_sequence", after, "the number of an event, or 0")

    def after(self, sequence: int) -> list[Numbered]:
        """All that follows this number, which an event had, in as few events as may be. Raises as `check` does."""
        if sequence < self._dropped:
            self.check(sequence)
        found: list[Numbered] = []
        for entry in reversed(self._entries):
            if entry.last <= sequence:
                break
            found.append(entry.after(sequence))
        found.reverse()
        self._delivered, self._unread_bytes = self.sequence, 0
        self._trim()
        return found

    def before(self, after: int) -> tuple[list[int], dict[int, int]]:
        """What a reader that stands there has: choices that have begun, and choice -> characters of its text."""
        begun = [index for index, first in self.first_sequences.items() if first <= after]
        characters = dict(self._dropped_characters)
        for entry in self._entries:
            if isinstance(entry, Run):
                _count(characters, entry, after)
        return begun, characters

    def wait(self) -> "asyncio.Future[None]":
        """Done at the next event, or when somebody sets it."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting = [other for other in self._waiting if not other.done()]
        self._waiting.append(waiting)
        return waiting

    def _add(self, entry: Run | Single) -> None:
        self._entries.append(entry)
        self._grew(entry.size_bytes)

    def _grew(self, grown_bytes: int) -> None:
        self.size_bytes += grown_bytes
        self._unread_bytes += grown_bytes
        if (
            self._unread_bytes > self._limits.max_unread_bytes
            and self.end is None
            and not self._overflown
        ):
            self._overflown = True
            self._overflow()

    def _trim(self) -> None:
        while self.size_bytes > self._limits.max_replay_bytes and len(self._entries) > 1:
            oldest = self._entries.pop(0)
            self._dropped = oldest.last
            if isinstance(oldest, Run):
                _count(self._dropped_characters, oldest, oldest.last)
            self.size_bytes -= oldest.size_bytes

    def _holds(self, sequence: int) -> bool:
        place = bisect_left(self._entries, sequence, key=lambda entry: entry.last)
        return place < len(self._entries) and self._entries[place].holds(sequence)

    def _wake(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)


def _count(characters: dict[int, int], run: Run, until: int) -> None:
    if run.is_text:
        characters[run.choice_index] = characters.get(run.choice_index, 0) + run.characters(until)


class Reader:
    """One reader of a replay.

    Args:
        cursor: the number of the last event that it has.
    """

    def __init__(self, replay: Replay, cursor: int) -> None:
        self._replay, self.cursor = replay, cursor
        self._waiting: asyncio.Future[None] | None = None
        self._is_displaced = False

    @property
    def is_waiting(self) -> bool:
        """Whether it has everything, and waits for more."""
        return self._waiting is not None and not self._waiting.done()

    @property
    def at_end(self) -> bool:
        """Whether it has the terminal event."""
        return self._replay.end is not None and self.cursor == self._replay.sequence

    async def take(self) -> list[Numbered]:
        """All that it does not have; waits for an event or for `wake`, after which there may be nothing.

        Raises GenerationExpiredError where it was so slow that what it wants is not kept any more, CancelledByPeerError
        where it was displaced.
        """
        replay = self._replay
        if self.cursor == replay.sequence and not self._is_displaced:
            if replay.end is not None:
                return []
            self._waiting = replay.wait()
            await self._waiting
        if self._is_displaced:
            raise CancelledByPeerError("Too many read this generation; newer readers go first.")
        taken = replay.after(self.cursor)
        self.cursor = replay.sequence
        return taken

    def wake(self) -> None:
        """Let `take` return."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def displace(self) -> None:
        """Let `take` raise."""
        self._is_displaced = True
        self.wake()
