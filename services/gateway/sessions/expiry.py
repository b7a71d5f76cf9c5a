"""When things end, without looking at all of them: a heap, whose entries are put right only when their time comes."""

import heapq
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Expiry(Generic[Key]):
    """Knows keys and their ends. Setting an end is O(1) where it moves on, which is what touches do, else O(log n).

    An entry of the heap is a lower bound of its key's end. When it comes up too early it goes back with the true end: at
    most once for each time that the key was touched, and mostly once for many.
    """

    def __init__(self) -> None:
        self._ends: dict[Key, float] = {}
        self._bounds: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._count = 0

    def __len__(self) -> int:
        """Keys that have an end."""
        return len(self._ends)

    def set(self, key: Key, end_s: float) -> None:
        """The key ends then, however it was before."""
        self._ends[key] = end_s
        bound = self._bounds.get(key)
        if bound is None or end_s < bound:
            self._push(key, end_s)

    def forget(self, key: Key) -> None:
        """The key has no end any more. What the heap has of it goes when its time comes, or with many others before."""
        self._ends.pop(key, None)
        self._bounds.pop(key, None)
        if len(self._heap) > 2 * len(self._ends) + 1024:
            self._compact()

    def next_end_s(self) -> float | None:
        """No key ends before; None: there is none."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_s: float, most: int, ended: Callable[[Key], None]) -> bool:
        """Forget keys whose end has come, and tell each; whether there may be more of them.

        Args:
            most: entries to look at.
        """
        for _ in range(most):
            if not self._heap or self._heap[0][0] > now_s:
                return False
            bound, _, key = heapq.heappop(self._heap)
            if self._bounds.get(key) != bound:
                continue  # forgotten, or it has an earlier entry
            end_s = self._ends[key]
            if end_s > now_s:
                self._push(key, end_s)
                continue
            del self._ends[key], self._bounds[key]
            ended(key)
        return True

    def _push(self, key: Key, end_s: float) -> None:
        self._bounds[key] = end_s
        self._count += 1  # keys need not be comparable
        heapq.heappush(self._heap, (end_s, self._count, key))

    def _compact(self) -> None:
        self._bounds = dict(self._ends)
        self._heap = [
            (end_s, number, key) for number, (key, end_s) in enumerate(self._ends.items())
        ]
        self._count = len(self._heap)
        heapq.heapify(self._heap)
