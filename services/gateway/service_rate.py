"""How many places become free in a second, measured while all are taken."""

from collections.abc import Callable

HALF_LIFE_TURNOVERS, HALF_LIFE_S, LEAST_ENDS = 2.0, 10.0, 8.0
"""A turnover is as many ends as there are places: generations that began together end together, so less is no measure. Until
there was one, and at least so many ends, there is no rate. What was seen so many turnovers and so many busy seconds ago
counts half: whichever is longer, so that neither a burst nor a pause of some seconds looks like a change."""


class ServiceRate:
    """Ends over busy time, both forgotten with each further end; idle time says nothing and counts as none.

    Args:
        places: that are taken while busy.
        clock: monotonic, in seconds.
    """

    def __init__(self, places: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._least_ends = max(LEAST_ENDS, float(places))
        self._most_decay = 1 / (HALF_LIFE_TURNOVERS * self._least_ends)
        self._since_end_s = 0.0
        self._busy_since_s: float | None = None
        self._busy_s = self._ends = 0.0

    def busy(self, now: bool) -> None:
        """All places are taken from now on, or no longer. Idempotent."""
        if now == (self._busy_since_s is not None):
            return
        if now:
            self._busy_since_s = self._clock()
        else:
            self._advance()
            self._busy_since_s = None

    def ended(self) -> None:
        """A place became free; counts while busy."""
        if self._busy_since_s is not None:
            self._advance()
            kept = 0.5 ** min(self._most_decay, self._since_end_s / HALF_LIFE_S)
            self._busy_s *= kept
            self._ends = self._ends * kept + 1
            self._since_end_s = 0.0

    @property
    def per_s(self) -> float | None:
        """Places a second, above 0; None: not known. Without ends it sinks while all places stay taken."""
        self._advance()
        if self._ends < self._least_ends or not self._busy_s:
            return None
        return self._ends / self._busy_s

    def _advance(self) -> None:
        if self._busy_since_s is not None:
            now_s = self._clock()
            elapsed_s = now_s - self._busy_since_s
            self._busy_s += elapsed_s
            self._since_end_s += elapsed_s
            self._busy_since_s = now_s
