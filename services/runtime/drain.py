"""Asking streams that a peer keeps open to end: they would hold a stop for its whole grace."""

import asyncio


class Drain:
    """Asks streams to end as soon as they have nothing open. One for all streams of a process."""

    def __init__(self) -> None:
        self.asked = False
        self.waiting: set[asyncio.Event] = set()
        """What wakes each stream."""

    def ask(self) -> None:
        """End streams that are idle, and the others when they become so. Idempotent."""
        self.asked = True
        for event in self.waiting:
            event.set()
