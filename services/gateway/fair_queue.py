"""Who of those that wait is next: by priority, then fairly between keys, then first come, first served.

Priority. A level is worth `priority_step_s` of waiting: among the classes (requests of one priority) the next is the one
for which `arrival of its oldest + priority x priority_step_s` is least. So a request is overtaken only by more urgent
ones that came at most `level difference x priority_step_s` after it, which bounds what the least urgent wait longer.

Fairness within a class: start-time fair queueing (Goyal, Vin, Cheng, 1996). A request of cost c of a key with weight w
gets the tag S = max(v, F), F being the key's last S + c / w and v the tag of the request served last; the least S is next.
A key that asks for much only waits behind itself.

The lists are sorted: to find a place takes log n comparisons; to make room moves n pointers, 1 us for thousands.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field


def _nobody() -> bool:
    """Nobody hears of it."""
    return True


@dataclass(eq=False)
class Waiter:
    """One request that wants a place."""

    flow: str
    """The key, or the owner where there is none."""
    weight: float
    """Its share, above 0."""
    cost: float
    """In tokens, as far as they are known."""
    priority: int
    turn: Callable[[], bool] = _nobody
    """Called by who gives out places, when it is this one's turn; false: it no longer wants one."""
    queued: bool = field(default=False, init=False)
    arrival_s: float = field(default=0.0, init=False)
    tag: tuple[float, int] = field(default=(0.0, 0), init=False)
    """Start tag, and the order of arrival."""


class _Class:
    """The requests of one priority."""

    def __init__(self) -> None:
        self.virtual = 0.0
        self.finish: dict[str, float] = {}
        self.by_tag: list[tuple[tuple[float, int], Waiter]] = []
        self.by_arrival: OrderedDict[int, Waiter] = OrderedDict()

    def add(self, waiter: Waiter, number: int) -> None:
        start = max(self.virtual, self.finish.get(waiter.flow, 0.0))
        self.finish[waiter.flow] = start + waiter.cost / waiter.weight
        waiter.tag = (start, number)
        insort(self.by_tag, (waiter.tag, waiter))
        self.by_arrival[number] = waiter

    def remove(self, waiter: Waiter) -> None:
        del self.by_tag[bisect_left(self.by_tag, waiter.tag, key=_tag)]
        del self.by_arrival[waiter.tag[1]]

    @property
    def oldest_s(self) -> float:
        return next(iter(self.by_arrival.values())).arrival_s


def _tag(entry: tuple[tuple[float, int], object]) -> tuple[float, int]:
    return entry[0]


class FairQueue:
    """Unbounded by itself: admission bounds who comes here.

    Args:
        clock: monotonic, in seconds.
    """

    def __init__(self, priority_step_s: float, clock: Callable[[], float]) -> None:
        self._step_s, self._clock = priority_step_s, clock
        self._classes: dict[int, _Class] = {}
        self._number = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, waiter: Waiter) -> None:
        """Begin to wait."""
        self._number += 1
        self._count += 1
        waiter.arrival_s, waiter.queued = self._clock(), True
        self._classes.setdefault(waiter.priority, _Class()).add(waiter, self._number)

    def ahead_of(self, waiter: Waiter) -> int:
        """How many are served before this one if nobody else comes; rather too few, where older ones are less urgent."""
        own = self._classes[waiter.priority]
        urgent = sum(len(c.by_tag) for p, c in self._classes.items() if p < waiter.priority)
        return urgent + bisect_left(own.by_tag, waiter.tag, key=_tag)

    def remove(self, waiter: Waiter) -> None:
        """Wait no longer. Its key keeps the tag: who comes and goes gains nothing. Idempotent."""
        if not waiter.queued:
            return
        waiter.queued = False
        own = self._classes[waiter.priority]
        own.remove(waiter)
        self._count -= 1
        if not own.by_tag:
            del self._classes[waiter.priority]

    def pop(self) -> Waiter:
        """Take the next one out; there is one."""
        priority = min(self._classes, key=lambda p: self._classes[p].oldest_s + p * self._step_s)
        chosen = self._classes[priority]
        waiter = chosen.by_tag[0][1]
        chosen.virtual = waiter.tag[0]
        self.remove(waiter)
        return waiter

    def correct(self, waiter: Waiter, cost: float) -> None:
        """One that was served turned out to cost this; its key's next ones wait accordingly."""
        own = self._classes.get(waiter.priority)
        if own is not None and waiter.flow in own.finish:
            own.finish[waiter.flow] += (cost - waiter.cost) / waiter.weight
            waiter.cost = cost

    def count(self, priorities: range) -> int:
        """How many of these priorities wait."""
        return sum(len(c.by_tag) for p, c in self._classes.items() if p in priorities)
