"""Keeping the engine resident: its first start, and bringing it back in this process when it ends or hangs."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import NoReturn

from services.runtime.logs import get_logger
from services.worker.backoff import Backoff
from services.worker.engine import Engine
from services.worker.generations import Generations

_log = get_logger()


@dataclass(frozen=True)
class Patience:
    """What an engine is given time for."""

    start_s: float
    """Loading and warm-up together."""
    stall_s: float
    """Without a step while generations run; 0: for ever."""
    restarts: int = 0
    """Further starts in one process, those that failed included; 0: any number."""


class EngineGivenUpError(Exception):
    """The engine was started as often as one process may; a fresh process is to go on."""


class ResidentEngine:
    """One engine's lives. Its first start is the caller's to see fail; all later ones are tried until they succeed.

    Args:
        warm_up: pays for what first requests would; runs after every start.
        warming: entered while the engine is down: peers are told, requests are refused.
        clock: in seconds, the one that engine and generations have.
    """

    def __init__(
        self,
        engine: Engine,
        generations: Generations,
        patience: Patience,
        warm_up: Callable[[], Awaitable[None]],
        warming: Callable[[], AbstractAsyncContextManager[None]],
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._engine, self._generations, self._patience = engine, generations, patience
        self._warm_up, self._warming = warm_up, warming
        self._clock, self._sleep = clock, sleep
        self._backoff = Backoff()
        self._starts_again = 0
        self._since_s: float | None = None
        self.restart_count = 0
        """Times that it ended by itself and was brought back."""

    @property
    def serving_s(self) -> float:
        """How long this engine has been ready; 0 while there is none."""
        return 0.0 if self._since_s is None else self._clock() - self._since_s

    async def start(self) -> None:
        """Load and warm up. Raises what the engine raises, TimeoutError where it takes too long."""
        begin_s = self._clock()
        async with asyncio.timeout(self._patience.start_s):
            await self._engine.start()
            loaded_s = self._clock()
            await self._warm_up()
        self._since_s = self._clock()
        _log.info(
            "warm",
            engine=self._engine.name,
            load_s=round(loaded_s - begin_s, 1),
            warm_up_s=round(self._since_s - loaded_s, 1),
        )

    async def keep(self) -> NoReturn:
        """Bring the engine back whenever it ends or hangs, until this is cancelled.

        Raises EngineGivenUpError instead of one more start than `Patience.restarts`.
        """
        while True:
            cause = await self._ended()
            async with self._warming():
                served_s, self._since_s = self.serving_s, None
                _log.error("the engine ended", cause=cause, served_s=round(served_s, 1))
                self._generations.engine_ended()
                await self._bring_back(served_s)
                self.restart_count += 1
                _log.info("the engine is back", restart_count=self.restart_count)

    async def _ended(self) -> str:
        """Wait for the end of the engine, or for its hanging; returns which."""
        waits = {asyncio.create_task(self._engine.died()): "died"}
        if self._patience.stall_s:
            waits[asyncio.create_task(self._stalled())] = "hung"
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
            await asyncio.wait(waits)
        task = done.pop()
        task.result()
        return waits[task]

    async def _stalled(self) -> None:
        """Return once generations have run without any step for too long. A busy engine makes steps."""
        limit_s = self._patience.stall_s
        while True:
            busy_since_s = self._generations.busy_since_s
            if busy_since_s is None:
                left_s = limit_s
            else:
                left_s = max(busy_since_s, self._engine.last_step_s) + limit_s - self._clock()
            if left_s <= 0:
                return
            await self._sleep(left_s)

    async def _bring_back(self, served_s: float) -> None:
        while True:
            await self._engine.close()
            limit = self._patience.restarts
            if limit and self._starts_again >= limit:
                raise EngineGivenUpError(
                    f"The engine was started again {limit} times in this process (engine_max_restarts); "
                    "each time leaves some memory behind, so a fresh process goes on."
                )
            self._starts_again += 1
            delay_s = self._backoff.crashed(served_s)
            _log.info("the engine starts again", delay_s=delay_s)
            await self._sleep(delay_s)
            try:
                await self.start()
            # Whatever a start raises, from whichever library: it is one more crash, and the next one may succeed.
            except Exception:  # noqa: BLE001
                _log.exception("the engine did not start")
                served_s = 0.0
            else:
                return
