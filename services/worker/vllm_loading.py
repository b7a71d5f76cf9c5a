"""Loading in a thread, and stopping it half-way."""

import asyncio
import multiprocessing
import threading
from collections.abc import Callable
from typing import Any

from services.runtime.logs import get_logger

_log = get_logger()

STOP_TIMEOUT_S = 60.0
"""Longest wait for a load that was told to stop; importing vLLM, which cannot be stopped, takes up to a third of it."""
KILL_INTERVAL_S = 0.25


class Loading:
    """One run of `build` in a thread of its own. The event it gets tells it to stop at its next step."""

    def __init__(self, build: Callable[[threading.Event], Any]) -> None:
        self._build, self._stopped = build, threading.Event()
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[Any] = self._loop.create_future()
        threading.Thread(target=self._run, name="engine-loading", daemon=True).start()

    def _run(self) -> None:
        # No local variable holds the result: frames live long where a debugger or torch keeps them.
        try:
            arguments: tuple[Any, BaseException | None] = (self._build(self._stopped), None)
        # The top of the thread: what it raises belongs to whoever awaits the result.
        except BaseException as error:  # noqa: BLE001
            arguments = (None, error)
        self._loop.call_soon_threadsafe(self._finish, *arguments)
        del arguments

    def _finish(self, result: Any, failure: BaseException | None) -> None:
        if failure is None:
            self._done.set_result(result)
        else:
            self._done.set_exception(failure)

    async def result(self) -> Any:
        """What `build` returned. Cancelling this does not end the thread: `stop` does."""
        return await asyncio.shield(self._done)

    async def stop(self) -> Any:
        """End it; returns what it had built, if it was done. Kills the processes that it has started."""
        self._stopped.set()
        deadline = self._loop.time() + STOP_TIMEOUT_S
        # vLLM has no way to end a load. It gives up when its engine process ends, which may be about to start.
        while not self._done.done() and self._loop.time() < deadline:
            for child in multiprocessing.active_children():
                child.kill()
            await asyncio.wait([self._done], timeout=KILL_INTERVAL_S)
        if not self._done.done():
            _log.error("the engine's load does not end", waited_s=STOP_TIMEOUT_S)
            return None
        done, self._done = self._done, self._loop.create_future()
        return None if done.exception() is not None else done.result()
