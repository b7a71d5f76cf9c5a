"""A bucket that fills at a steady rate, and what is in it."""

from collections.abc import Callable


class TokenBucket:
    """Full at first. It may be overdrawn, by what turns out dearer than it was taken for; then it fills from below.

    Args:
        size: the most that it holds, above 0.
        per_s: what flows in, above 0.
        clock: monotonic, in seconds.
    """

    def __init__(self, size: float, per_s: float, clock: Callable[[], float]) -> None:
        self.size, self.per_s, self._clock = size, per_s, clock
        self._level, self._level_s = size, clock()

    @property
    def level(self) -> float:
        """What is in it now; below 0 where it is overdrawn."""
        now_s = self._clock()
        self._level = min(self.size, self._level + (now_s - self._level_s) * self.per_s)
        self._level_s = now_s
        return self._level

    def take(self, amount: float) -> None:
        """Take out, whether there is so much or not."""
        self._level = self.level - amount

    def give_back(self, amount: float) -> None:
        """Put in what was not used; what does not fit is lost."""
        self._level = min(self.size, self.level + amount)

    def wait_s(self, amount: float) -> float:
        """Seconds until so much is in it, if nobody takes anything; 0: now. Only for what it can hold."""
        return max(amount - self.level, 0.0) / self.per_s

    def resize(self, size: float, per_s: float) -> None:
        """Change its limits; what was taken stays taken."""
        taken = self.size - self.level
        self.size, self.per_s = size, per_s
        self._level = size - taken
