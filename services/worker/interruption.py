"""Ending a generation from outside: by its time limit or by Abort, with the ids so far, or because its engine ended."""

import asyncio
from collections.abc import AsyncGenerator

from services.runtime.errors import ServiceError
from services.worker.engine import Finished, Reason, Started, Step, Tokens


class InterruptibleSteps:
    """An engine's steps of one generation, which `interrupt` ends early but in good order.

    The engine's slot is freed at once, also while the consumer is busy elsewhere with a step (a slow reader, say).
    """

    def __init__(
        self, steps: AsyncGenerator[Step, None], choice_count: int, prompt_tokens: int
    ) -> None:
        self._steps, self._prompt_tokens = steps, prompt_tokens
        self._open = dict.fromkeys(range(choice_count), 0)  # choice -> ids delivered
        self._started = False
        self._reason: Reason | None = None
        self._failure: ServiceError | None = None
        self._wait: asyncio.Timeout | None = None
        self._closing: asyncio.Task[None] | None = None

    def interrupt(self, reason: Reason) -> None:
        """End the generation with this reason; the first call counts. Not after `close`."""
        if not self._interrupted():
            self._reason = reason
            self._end()

    def fail(self, error: ServiceError) -> None:
        """As `interrupt`, but `run` raises this error."""
        if not self._interrupted():
            self._failure = error
            self._end()

    def _end(self) -> None:
        if self._wait is not None:
            self._wait.reschedule(asyncio.get_running_loop().time())
        else:  # suspended at a yield: it can be closed from here
            self._closing = asyncio.ensure_future(self._steps.aclose())

    async def run(self, time_limit_s: float) -> AsyncGenerator[Step, None]:
        """The steps; 0: no time limit. Raises what `fail` was given."""
        timer = None
        if time_limit_s:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(time_limit_s, self.interrupt, Reason.TIME_LIMIT)
        try:
            while (step := await self._next()) is not None:
                self._note(step)
                yield step
            if self._failure is not None:
                raise self._failure
            if self._reason is not None:
                for step in self._endings(self._reason):
                    yield step
        finally:
            if timer is not None:
                timer.cancel()
            if self._closing is not None:
                await self._closing
            await self._steps.aclose()

    async def _next(self) -> Step | None:
        if self._interrupted():
            return None
        try:
            async with asyncio.timeout(None) as self._wait:
                return await anext(self._steps, None)
        except TimeoutError:
            if not self._interrupted():
                raise  # the engine's own
            return None
        finally:
            self._wait = None

    def _interrupted(self) -> bool:
        return self._reason is not None or self._failure is not None

    def _note(self, step: Step) -> None:
        if isinstance(step, Started):
            self._started = True
        elif isinstance(step, Tokens):
            self._open[step.choice_index] += len(step.token_ids)
        else:
            del self._open[step.choice_index]

    def _endings(self, reason: Reason) -> list[Step]:
        # The stream's shape holds even where the engine had not begun.
        started: list[Step] = [] if self._started else [Started(self._prompt_tokens, 0)]
        return started + [Finished(index, reason, count) for index, count in self._open.items()]
