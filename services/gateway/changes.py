"""Waiting for something to change, for any number of waiters."""

import asyncio


class Changes:
    """Told of changes; each wait ends with the next one. Check first, then wait, with no other wait between."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def tell(self) -> None:
        """Something changed: everybody who waits goes on."""
        self._next.set()
        self._next = asyncio.Event()

    async def wait(self) -> None:
        """Return with the next change."""
        await self._next.wait()
