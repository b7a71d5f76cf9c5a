"""When things end, without looking at all of them: slots of a quarter of a second, and a heap of the slots."""

import heapq
import math
from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

SLOT_S = 0.25
"""A key is looked at so much after its end at most. A power of two, so that no slot begins before its keys' ends."""
SPARE_SLOTS = 1024


class Expiry(Generic[Key]):
    """Knows keys and their ends. Where an end moves on, which is what touches do, setting it is O(1); else O(log n).

    A key stays in its slot when its end moves on. When the slot comes up it goes to the slot of its true end: at most once
    for each time that it was touched, and mostly once for many. A heap of slots, not of keys: what is forgotten leaves at
    once, and no step of it has more to do than a list of whole numbers takes (5 ms for 100,000).
    """

    def __init__(self) -> None:
        self._ends: dict[Key, float] = {}
        self._slot_of: dict[Key, int] = {}
        self._slots: dict[int, set[Key]] = {}
        """None of them empty."""
        self._heap: list[int] = []
        """All slots, and some that are no more."""

    def __len__(self) -> int:
        """Keys that have an end."""
        return len(self._ends)

    def set(self, key: Key, end_s: float) -> None:
        """The key ends then, however it was before."""
        slot, held = math.ceil(end_s / SLOT_S), self._slot_of.get(key)
        self._ends[key] = end_s
        if held is not None:
            if slot >= held:
                return
            self._leave(key)
        self._enter(key, slot)

    def forget(self, key: Key) -> None:
        """The key has no end any more."""
        if self._ends.pop(key, None) is not None:
            self._leave(key)

    def due(self, now_s: float, most: int, ended: Callable[[Key], None]) -> bool:
        """Forget keys whose end has come, and tell each; whether there may be more of them.

        Args:
            most: keys to look at.
        """
        for _ in range(most):
            if not self._heap or self._heap[0] * SLOT_S > now_s:
                return False
            keys = self._slots.get(self._heap[0])
            if keys is None:
                heapq.heappop(self._heap)
                continue
            key = keys.pop()  # an iterator would look at the emptied places anew each time
            self._left(self._slot_of.pop(key), keys)
            if self._ends[key] > now_s:
                self._enter(key, math.ceil(self._ends[key] / SLOT_S))
                continue
            del self._ends[key]
            ended(key)
        return True

    def _enter(self, key: Key, slot: int) -> None:
        self._slot_of[key] = slot
        keys = self._slots.get(slot)
        if keys is None:
            keys = self._slots[slot] = set()
            heapq.heappush(self._heap, slot)
        keys.add(key)

    def _leave(self, key: Key) -> None:
        slot = self._slot_of.pop(key)
        keys = self._slots[slot]
        keys.discard(key)
        self._left(slot, keys)

    def _left(self, slot: int, keys: Collection[Key]) -> None:
        if keys:
            return
        del self._slots[slot]
        if len(self._heap) > 2 * len(self._slots) + SPARE_SLOTS:
            self._heap = list(self._slots)
            heapq.heapify(self._heap)
