"""What one stream of generations has ready: gathered during a tick of the loop, or for as long as the peer is slow."""

import asyncio
from dataclasses import dataclass, field

from services.runtime.errors import ServiceError
from services.worker.engine import Finished, Load, PositionLogprobs, Started, Step, Tokens


@dataclass(slots=True)
class Run:
    """Neighbouring ids of one choice."""

    position: int
    """Index of the first of them in the choice's output."""
    token_ids: list[int]
    logprobs: list[PositionLogprobs]
    """One for each id, or empty where not asked for."""


@dataclass(slots=True)
class Batch:
    """One message's worth."""

    started: list[tuple[int, Started]] = field(default_factory=list)
    """Handle and step of each generation that began."""
    runs: dict[tuple[int, int], Run] = field(default_factory=dict)
    """By handle and choice, in order of their first news."""
    ended: list[tuple[int, Finished | ServiceError]] = field(default_factory=list)
    """Handle and end; an error ends all choices of its handle."""
    load: Load | None = None
    """Set where it is to be told."""

    def __len__(self) -> int:
        return len(self.started) + len(self.runs) + len(self.ended)


class Outbox:
    """Steps of many generations, those of one choice merged.

    Ids are bounded by max_tokens of the generations in it. Their number is bounded by who fills it: `has_room` is
    cleared while there is news of `limit` things, and no generation should begin before it is set again.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._batch = Batch()
        self.filled = asyncio.Event()
        """There is something, or the reader of the outbox is to look at its own state."""
        self.has_room = asyncio.Event()
        self.has_room.set()

    def put(self, handle: int, step: Step) -> None:
        """Add one step."""
        batch = self._batch
        if isinstance(step, Tokens):
            key = (handle, step.choice_index)
            run = batch.runs.get(key)
            if run is None:
                batch.runs[key] = Run(step.position, list(step.token_ids), list(step.logprobs))
            else:
                run.token_ids += step.token_ids
                run.logprobs += step.logprobs
        elif isinstance(step, Started):
            batch.started.append((handle, step))
        else:
            batch.ended.append((handle, step))
        self._filled()

    def fail(self, handle: int, error: ServiceError) -> None:
        """Add the failure of a whole generation."""
        self._batch.ended.append((handle, error))
        self._filled()

    def forget(self, handle: int) -> None:
        """Drop what is said of a handle."""
        batch = self._batch
        batch.started = [entry for entry in batch.started if entry[0] != handle]
        batch.runs = {key: run for key, run in batch.runs.items() if key[0] != handle}
        batch.ended = [entry for entry in batch.ended if entry[0] != handle]

    def take(self) -> Batch:
        """Everything, and forget it."""
        batch, self._batch = self._batch, Batch()
        self.filled.clear()
        self.has_room.set()
        return batch

    def _filled(self) -> None:
        self.filled.set()
        if len(self._batch) >= self._limit:
            self.has_room.clear()
