"""The generations that run here: admission, conflicts, time limits, Abort."""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from services.runtime.errors import (
    EngineDeadError,
    GenerationConflictError,
    InvalidArgumentError,
    OverloadedError,
    ServiceError,
)
from services.worker.engine import (
    Engine,
    FeatureTensor,
    Job,
    PlacedFeature,
    Prompt,
    Reason,
    Sampling,
    Step,
)
from services.worker.features import FeatureStore
from services.worker.interruption import InterruptibleSteps
from services.worker.limits import Limits
from services.worker.moved import continued, shifted
from services.worker.observer import StepObserver, Unobserved
from services.worker.request import GenerateRequest
from services.worker.validation import check, check_generation_id

RETRY_DELAY_S = 1.0


class Generations:
    """All generations of one engine.

    Bounded: where more than `capacity` choices would run and wait, OverloadedError, at once. A generation that is
    alone is never refused, whatever its n.
    """

    def __init__(
        self,
        engine: Engine,
        store: FeatureStore,
        limits: Limits,
        capacity: int,
        clock: Callable[[], float] = time.monotonic,
        observer: StepObserver | None = None,
    ) -> None:
        self._engine, self._store, self._limits = engine, store, limits
        self._capacity, self._clock = capacity, clock
        self._observer = observer or Unobserved()
        self._choice_count = 0
        self.busy_since_s: float | None = None
        """Since when something has run, pauses left out that followed no step of the engine; None: nothing runs."""
        self._unanswered_s = 0.0
        self._running: dict[str, InterruptibleSteps] = {}

    async def run(self, request: GenerateRequest) -> AsyncGenerator[Step, None]:
        """One generation; closing the generator, or cancelling its consumer, frees its slot at once.

        Raises:
            InvalidArgumentError, ContextLengthError, UnimplementedError: see validation.check.
            GenerationConflictError: the id is running.
            FeaturesMissingError: tensors are not in the store.
            OverloadedError: too many generations run and wait.
            EngineDeadError, InternalError: see Engine.generate.
        """
        sampling, moved = check(request, self._limits), len(request.output_token_ids)
        self._admit(request.generation_id, sampling.n)
        digests = [placement.digest for placement in request.placements]
        with self._store.pinned(digests) as tensors:
            job = _job(request, sampling, tensors)
            steps = InterruptibleSteps(
                self._engine.generate(job), sampling.n, len(job.prompt.token_ids)
            )
            if not self._running:
                self.busy_since_s = self._clock() - self._unanswered_s
            self._running[request.generation_id] = steps
            self._choice_count += sampling.n
            try:
                async with aclosing(steps.run(request.time_limit_ms / 1000)) as run:
                    async for step in run:
                        self._observer.step(step)
                        yield shifted(step, moved) if moved else step
            except ServiceError as error:
                self._observer.failed(error.reason)
                raise
            finally:
                self._choice_count -= sampling.n
                del self._running[request.generation_id]
                if not self._running:
                    self._note_pause()

    def abort(self, generation_id: str) -> bool:
        """End a generation with reason CANCELLED; whether it ran. Raises InvalidArgumentError for an id that is none."""
        check_generation_id(generation_id)
        steps = self._running.get(generation_id)
        if steps is None:
            return False
        steps.interrupt(Reason.CANCELLED)
        return True

    def engine_ended(self) -> None:
        """End all generations with EngineDeadError, also those of an engine that only hangs."""
        for steps in self._running.values():
            steps.fail(
                EngineDeadError(
                    "The engine ended while this generation ran.", retry_delay_s=RETRY_DELAY_S
                )
            )

    def _note_pause(self) -> None:
        """Callers that give up one after the other must not hide that the engine answers none of them."""
        since_s = max(self.busy_since_s or 0.0, self._engine.last_step_s)
        self._unanswered_s = max(0.0, self._clock() - since_s)
        self.busy_since_s = None

    def _admit(self, generation_id: str, choice_count: int) -> None:
        if generation_id in self._running:
            raise GenerationConflictError(
                f"generation_id: {generation_id!r} is running on this worker; ids must be unique."
            )
        if self._choice_count and self._choice_count + choice_count > self._capacity:
            raise OverloadedError(
                f"{self._choice_count} generations run and wait on this worker; the limit is {self._capacity}.",
                retry_delay_s=RETRY_DELAY_S,
            )


def _job(request: GenerateRequest, sampling: Sampling, tensors: list[FeatureTensor]) -> Job:
    for index, (placement, tensor) in enumerate(zip(request.placements, tensors, strict=True)):
        if placement.grid != tensor.grid:
            raise InvalidArgumentError(
                f"features[{index}].grid",
                tuple(placement.grid),
                f"{tuple(tensor.grid)}, the grid of the tensor with this digest",
            )
    ids, moved = request.prompt_token_ids, request.output_token_ids
    return Job(
        generation_id=request.generation_id,
        prompt=Prompt(
            token_ids=[*ids, *moved] if moved else ids,
            features=tuple(map(PlacedFeature, request.placements, tensors)),
            cache_salt=request.cache_salt,
        ),
        sampling=continued(sampling, len(moved)) if moved else sampling,
        priority=request.priority,
        trace_key=request.trace_key or request.generation_id,
        moved_tokens=len(moved),
    )
