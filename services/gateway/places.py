"""The places of running generations, and the wait for one."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from services.gateway.fair_queue import FairQueue, Waiter
from services.gateway.service_rate import ServiceRate
from services.runtime.errors import OverloadedError

PREDICTION_RATIO = 0.8
"""A wait is foretold as so much of what the measured rate says: who could just make it is let in."""

LEAST_RETRY_S, MOST_RETRY_S = 1.0, 60.0
"""Bounds of a retry delay; the least one also where no rate is known."""


class Places:
    """So many at once; FairQueue chooses who is next.

    Args:
        clock: monotonic, in seconds.
    """

    def __init__(self, count: int, priority_step_s: float, clock: Callable[[], float]) -> None:
        self._count = count
        self.queue = FairQueue(priority_step_s, clock)
        self._rate = ServiceRate(count, clock)
        self._grants = 0
        self.running_count = 0

    @asynccontextmanager
    async def hold(
        self, waiter: Waiter, limit_s: float, patience_s: float
    ) -> AsyncGenerator[int, None]:
        """Hold a place; yields how many others were given one while this one waited.

        Args:
            limit_s: refuse at once where the wait is foretold to be longer, such as the time left to a deadline.
            patience_s: longest wait.

        Raises:
            OverloadedError: as `limit_s` says, or after `patience_s`. What it took then is its `metadata["limit"]`.
        """
        ahead = 0
        if self.running_count < self._count:  # then nobody waits
            self._occupy()
        else:
            ahead = await self._wait(waiter, min(limit_s, patience_s), patience_s)
        try:
            yield ahead
        finally:
            self._free()

    def retry_delay_s(self) -> float:
        """When those who wait now will have a place, by the measured rate."""
        rate = self._rate.per_s
        delay_s = 0.0 if rate is None else len(self.queue) / rate
        return min(max(delay_s, LEAST_RETRY_S), MOST_RETRY_S)

    async def _wait(self, waiter: Waiter, limit_s: float, patience_s: float) -> int:
        granted = asyncio.get_running_loop().create_future()

        def turn() -> bool:
            if granted.cancelled():  # it gave up in the same moment
                return False
            granted.set_result(None)
            return True

        waiter.turn = turn
        self.queue.add(waiter)
        grants = self._grants
        try:
            self._refuse_late(waiter, limit_s)
            async with asyncio.timeout(patience_s):
                await granted
        except BaseException as error:
            if granted.done() and not granted.cancelled():
                self._free()  # its turn came in the same moment
            else:
                self.queue.remove(waiter)
            if isinstance(error, TimeoutError):
                raise self._refusal(
                    "queue_timeout_s", f"No place became free within {patience_s:g} s."
                ) from None
            raise
        return self._grants - grants - 1

    def _refuse_late(self, waiter: Waiter, limit_s: float) -> None:
        rate = self._rate.per_s
        if rate is None:
            return
        ahead = self.queue.ahead_of(waiter)
        wait_s = (ahead + 1) / rate * PREDICTION_RATIO
        if wait_s > limit_s:
            raise self._refusal(
                "wait",
                f"{ahead} requests are ahead, some {wait_s:.1f} s, but this one can wait {limit_s:.1f} s.",
            )

    def _refusal(self, limit: str, message: str) -> OverloadedError:
        return OverloadedError(
            message, metadata={"limit": limit}, retry_delay_s=self.retry_delay_s()
        )

    def _occupy(self) -> None:
        self.running_count += 1
        self._rate.busy(self.running_count == self._count)

    def _free(self) -> None:
        """Give the place to the next one, or leave it empty."""
        self._rate.ended()
        while len(self.queue):
            if self.queue.pop().turn():
                self._grants += 1
                return
        self.running_count -= 1
        self._rate.busy(False)
