"""When a generation came to each phase of its life."""

from collections.abc import Callable
from itertools import pairwise

from services.gateway.events import Timings

PHASES = ("asked", "admitted", "rendered", "first", "ended")


class Marks:
    """Begins with "asked"; of a phase that was never marked nothing was spent.

    Args:
        clock: monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at_s = {PHASES[0]: clock()}

    def mark(self, phase: str) -> None:
        """It begins now, unless it has begun."""
        self._at_s.setdefault(phase, self._clock())

    def timings(self) -> Timings:
        """Seconds between each phase and the next; for a generation that ends now."""
        self.mark(PHASES[-1])
        end_s = self._at_s[PHASES[-1]]
        marks = [self._at_s.get(phase, end_s) for phase in PHASES]
        return Timings(*(after - before for before, after in pairwise(marks)))
