"""A bounded waiting room before a bounded number of renders."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from services.runtime.errors import OverloadedError


class Admission:
    """So many at once, so many waiting (first come, first served); whoever comes then is refused at once."""

    def __init__(self, running_limit: int, waiting_limit: int, retry_delay_s: float = 1.0) -> None:
        self.running_limit, self.waiting_limit = running_limit, waiting_limit
        self._places = asyncio.Semaphore(running_limit)
        self._retry_delay_s = retry_delay_s
        self.running_count = 0
        self.waiting_count = 0

    @asynccontextmanager
    async def place(self) -> AsyncGenerator[None, None]:
        """Hold a place; the caller has a deadline of its own. Raises OverloadedError at the bound."""
        if self._places.locked() and self.waiting_count >= self.waiting_limit:
            raise OverloadedError(
                f"{self.running_count} requests are running and {self.waiting_count} waiting; "
                f"the limits are {self.running_limit} and {self.waiting_limit}.",
                retry_delay_s=self._retry_delay_s,
            )
        self.waiting_count += 1
        try:
            await self._places.acquire()
        finally:
            self.waiting_count -= 1
        self.running_count += 1
        try:
            yield
        finally:
            self.running_count -= 1
            self._places.release()
