"""Signs of life for one reader while there is nothing else to tell."""

from collections.abc import Callable, Sequence
from typing import Protocol

from services.gateway.events import Heartbeat, Numbered, State
from services.gateway.progress import state_after
from services.gateway.retention import Later, Timer


class Source(Protocol):
    """Where a reader takes events from."""

    async def take(self) -> list[Numbered]:
        """Those that wait; after `wake` there may be none."""

    def wake(self) -> None:
        """Let `take` return."""


class Pulse:
    """Wakes a reader that was told nothing for so long.

    Args:
        interval_s: of silence.
        ahead: how many are ahead in the queue.
        clock: monotonic, in seconds.
        state: where the generation is as the reader begins, who has everything up to `sequence`.
    """

    def __init__(
        self,
        interval_s: float,
        source: Source,
        ahead: Callable[[], int],
        clock: Callable[[], float],
        later: Later,
        state: State = State.QUEUED,
        sequence: int = 0,
    ) -> None:
        self._interval_s, self._source, self._ahead = interval_s, source, ahead
        self._clock, self._later = clock, later
        self._state, self._sequence = state, sequence
        self._told_s = clock()
        self._timer: Timer = later(interval_s, self._look)

    def beat(self, told: Sequence[Numbered]) -> Numbered | None:
        """The reader was told this; a heartbeat where it was nothing."""
        self._told_s = self._clock()
        if told:
            for numbered in told:
                self._state = state_after(self._state, numbered.event)
            self._sequence = told[-1].sequence
            return None
        ahead = self._ahead() if self._state is State.QUEUED else 0
        return Numbered(self._sequence, Heartbeat(self._state, ahead))

    def close(self) -> None:
        """No more of them. Idempotent."""
        self._timer.cancel()

    def _look(self) -> None:
        silent_s = self._clock() - self._told_s
        if silent_s >= self._interval_s:
            self._source.wake()
            self._told_s = self._clock()
            silent_s = 0.0
        self._timer = self._later(self._interval_s - silent_s, self._look)
