"""How long a generation may take."""

from collections.abc import Callable

DEADLINE_MARGIN_S = 0.1
"""A generation ends so long before its deadline, so that the terminal event still arrives."""


class TimeLimit:
    """A generation's deadline.

    Args:
        deadline_s: on the clock, which is monotonic, in seconds.
    """

    def __init__(self, deadline_s: float, clock: Callable[[], float]) -> None:
        self._deadline_s, self._clock = deadline_s, clock

    def for_worker_s(self) -> float:
        """What a worker that begins now may take."""
        return max(self._remaining_s() - DEADLINE_MARGIN_S, 0.001)

    def patience_s(self) -> float:
        """Until the gateway itself ends it: a worker that hangs does not, and the client must still hear of the end."""
        remaining_s = self._remaining_s()
        return max(remaining_s - DEADLINE_MARGIN_S / 2, remaining_s / 2)

    def _remaining_s(self) -> float:
        return max(self._deadline_s - self._clock(), 0.0)
