"""One generation on workers: placed, pushed its features, run; and gone on with elsewhere when a worker goes."""

import asyncio
from array import array
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Protocol

from services.gateway.interfaces import (
    GenerationRequest,
    Placement,
    Rendered,
    Worker,
    WorkerEvent,
    WorkerFinished,
    WorkerStarted,
    WorkerTokens,
)
from services.gateway.prompt_room import answer_room
from services.gateway.session_interfaces import PromptRendering
from services.gateway.time_limit import TimeLimit
from services.runtime.errors import (
    EngineDeadError,
    FeaturesMissingError,
    OverloadedError,
    ServiceError,
    UnavailableError,
)
from services.runtime.logs import get_logger

_log = get_logger()

_MOVABLE = (OverloadedError, UnavailableError, EngineDeadError)
"""Failures of one worker, which another worker need not have."""
PAUSE_S = 0.2
"""Before a worker is asked again that counts as serving and has just failed."""


class StepListener(Protocol):
    """What hears of the steps."""

    def started(self, worker: str, cached_tokens: int) -> None:
        """A worker has begun; the first one only."""

    def tokens(self, step: WorkerTokens) -> None:
        """New ids of a choice."""

    def choice_ended(self, step: WorkerFinished) -> None:
        """A choice has ended."""

    def pushed(self) -> None:
        """The features are where they have to be."""


class WorkerRuns:
    """Runs one generation on as many workers as it takes.

    Before it began it is tried on one other worker. Afterwards it goes on on another one, or on the same when that is
    back, as a prompt with the ids so far behind it: the listener hears of no gap and of nothing twice. That needs a sampling
    whose state follows from the ids (GenerationRequest.is_movable); others fail, in a way that is retryable.
    """

    def __init__(
        self,
        request: GenerationRequest,
        placement: Placement,
        rendering: PromptRendering,
        limit: TimeLimit,
        listener: StepListener,
    ) -> None:
        self._request, self._placement, self._rendering = request, placement, rendering
        self._limit, self._listener = limit, listener
        self._over = asyncio.Event()
        self._failure: ServiceError | None = None
        self._worker_failure: ServiceError | None = None
        self.begun = False
        """A worker has begun."""
        self.worker = ""
        """The name of the last one."""
        self.ids = array("I")
        """What was sampled so far, where there is one choice."""
        self.rendered = Rendered((), (), (), False)
        self._gone: Worker

    async def render(self) -> None:
        """Make the prompt. Raises ServiceError."""
        self.rendered = await self._rendering.render()

    def end(self, failure: ServiceError | None = None) -> None:
        """The last text has ended, or something failed that is not the worker's."""
        self._failure = self._failure or failure
        self._over.set()

    async def run(self, prefer: str, placed: Callable[[Worker], None]) -> ServiceError | None:
        """Run to the end; what failed on a worker at last, None where all went well. Raises what failed elsewhere.

        Args:
            prefer: the name of the worker that has the prompt's beginning in its cache; empty: none.
            placed: called with the first worker, before it is asked for anything.
        """
        with self._placement.worker(self._request.model, prefer=prefer) as worker:
            placed(worker)
            failure = await self._attempt(worker)
        if isinstance(failure, _MOVABLE) and not self.begun:
            failure = await self._elsewhere(worker, failure)
        loop, give_up_s, token_count = asyncio.get_running_loop(), 0.0, -1
        while self.begun and isinstance(failure, _MOVABLE) and self._request.is_movable:
            if len(self.ids) > token_count:  # the time is for getting on at all
                give_up_s = loop.time() + self._placement.move_timeout_s
                token_count = len(self.ids)
            if loop.time() >= give_up_s:
                break
            failure = await self._moved(failure, give_up_s)
        return failure

    async def _elsewhere(self, refusing: Worker, failure: ServiceError) -> ServiceError | None:
        """Try one other worker, where there is one; its failure, or the first one's where there is none."""
        with ExitStack() as stack:
            try:
                placing = self._placement.worker(self._request.model, other_than=refusing)
                worker = stack.enter_context(placing)
            except UnavailableError:
                return failure
            _log.info(
                "generation moves before its begin",
                generation_id=self._request.generation_id,
                refused_by=refusing.name,
                reason=failure.reason.value,
                worker=worker.name,
            )
            return await self._attempt(worker)

    async def _moved(self, failure: ServiceError, give_up_s: float) -> ServiceError | None:
        """Go on on the next worker that serves; `failure` where none does in time."""
        gone = self._gone
        with ExitStack() as held:
            try:
                async with asyncio.timeout_at(give_up_s):
                    worker = await self._next(held)
            except TimeoutError:
                return failure
            _log.warning(
                "generation moves",
                generation_id=self._request.generation_id,
                gone=gone.name,
                reason=failure.reason.value,
                worker=worker.name,
                tokens=len(self.ids),
            )
            self._placement.moved()
            return await self._attempt(worker)

    async def _next(self, held: ExitStack) -> Worker:
        """Another worker at once; the one that went when it is back, or after a pause where it never ceased to serve."""
        model = self._request.model
        other_than: Worker | None = self._gone
        patience_s: float | None = PAUSE_S
        while True:
            with suppress(UnavailableError):
                return held.enter_context(self._placement.worker(model, other_than=other_than))
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._placement.changed()
            other_than = patience_s = None

    async def _attempt(self, worker: Worker) -> ServiceError | None:
        """Run on this worker; returns what failed there, None where all went well. Raises what failed elsewhere."""
        failure = await self._push(worker)
        if failure is None:
            self._listener.pushed()
            failure = await self._steps(worker)
        if isinstance(failure, FeaturesMissingError) and self.rendered.feature_digests:
            # Nothing was sampled there. The worker's store is bounded too; once more is enough.
            failure = await self._push(worker)
            if failure is None:
                failure = await self._steps(worker)
        return failure

    async def _push(self, worker: Worker) -> ServiceError | None:
        self._gone, self.worker = worker, worker.name
        if not self.rendered.feature_digests:
            return None
        before = self.rendered
        try:
            self.rendered = await self._rendering.push(before, worker.name)
        except _MOVABLE as error:
            return error
        if self.begun and list(self.rendered.token_ids) != list(before.token_ids):
            # An image of the history is gone: what was said so far was said to another prompt.
            raise UnavailableError("An image of this conversation is no longer kept.")
        return None

    async def _steps(self, worker: Worker) -> ServiceError | None:
        """Worker -> listener, by callbacks, until the last text has ended or something failed.

        Returns what failed on the worker; raises what failed elsewhere.
        """
        if self._failure is not None:  # while features were pushed
            raise self._failure
        self._over.clear()
        self._worker_failure = None
        max_tokens = answer_room(worker, self.rendered, self._request.max_tokens)
        take, limit_s = partial(self._take, worker), self._limit.for_worker_s()
        steps = worker.generate(self._request, self.rendered, max_tokens, limit_s, take, self.ids)
        try:
            await self._over.wait()
        finally:
            steps.close()  # its slot is being freed before the client hears of the end
        if self._failure is not None:
            raise self._failure
        return self._worker_failure

    def _take(self, worker: Worker, step: WorkerEvent | ServiceError) -> None:
        if isinstance(step, WorkerTokens):
            if self._request.choice_count == 1:
                self.ids.extend(step.token_ids)
            self._listener.tokens(step)
        elif isinstance(step, WorkerFinished):
            self._listener.choice_ended(step)
        elif isinstance(step, WorkerStarted):
            if not self.begun:
                self.begun = True
                self._listener.started(worker.name, step.cached_tokens)
        else:
            self._worker_failure = step
            self._over.set()
