"""Threads for CPU work, so that none of it runs on the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


class CpuPool:
    """Some threads; whoever comes when all are busy waits. Admission bounds how many that are.

    The libraries that do the heavy work (Pillow, torch, tokenizers, hashlib) let other threads run meanwhile.
    """

    def __init__(self, thread_count: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(thread_count, thread_name_prefix=name)

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run `work` in a thread.

        A thread cannot be stopped: cancelled, this drops work that has not begun, and otherwise waits for its end,
        so that the caller's place in the queue stays taken as long as the thread is.
        """
        job = self._executor.submit(work)
        result = asyncio.wrap_future(job)
        try:
            return await asyncio.shield(result)
        except asyncio.CancelledError:
            if not job.cancel():
                await asyncio.wait((result,))
                if not result.cancelled():
                    result.exception()  # nobody else will look at it
            raise

    def close(self) -> None:
        """Begin nothing more. Idempotent; work that runs goes on to its end."""
        self._executor.shutdown(wait=False, cancel_futures=True)
