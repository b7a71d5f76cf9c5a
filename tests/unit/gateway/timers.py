"""A clock that stands still until it is moved, with the timers that hang on it."""

from collections.abc import Callable


class SetTimer:
    """See retention.Timer."""

    def __init__(self, due_s: float, act: Callable[[], None]) -> None:
        self.due_s, self.act, self.is_cancelled = due_s, act, False

    def cancel(self) -> None:
        self.is_cancelled = True


class Timers:
    """`now` is the clock, `later` sets timers."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._set: list[SetTimer] = []

    def now(self) -> float:
        return self._now_s

    def later(self, delay_s: float, act: Callable[[], None]) -> SetTimer:
        timer = SetTimer(self._now_s + delay_s, act)
        self._set.append(timer)
        return timer

    @property
    def waiting(self) -> int:
        return sum(not timer.is_cancelled for timer in self._set)

    def advance(self, seconds: float) -> None:
        """Let time pass; what is due by then happens in its order."""
        end_s = self._now_s + seconds
        while due := [t for t in self._set if not t.is_cancelled and t.due_s <= end_s]:
            first = min(due, key=lambda timer: timer.due_s)
            self._set.remove(first)
            self._now_s = first.due_s
            first.act()
        self._now_s = end_s
