"""The running generations: each a task of its own, so that it can be cancelled by name, and later resumed."""

import asyncio
from collections.abc import AsyncGenerator, Callable

from services.gateway.admission import Admission
from services.gateway.call_entry import entry_of_call
from services.gateway.conflict import conflict
from services.gateway.events import Failed, Finished, Numbered
from services.gateway.generation import Generation
from services.gateway.interfaces import GenerationRequest, Placement
from services.gateway.observer import Observer, Unobserved
from services.runtime.errors import UnavailableError

CANCEL_TIMEOUT_S = 5.0
"""Longest wait for a cancelled generation to free what it holds."""


class Registry:
    """Owns every running generation of this gateway."""

    def __init__(
        self,
        placement: Placement,
        admission: Admission,
        clock: Callable[[], float],
        render_timeout_s: float,
        observer: Observer | None = None,
    ) -> None:
        self._placement, self._admission, self._clock = placement, admission, clock
        self._render_timeout_s = render_timeout_s
        self._observer = observer or Unobserved()
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._generations: dict[tuple[str, str], Generation] = {}
        self._closed = False

    @property
    def running_count(self) -> int:
        """Generations under way, those that wait included."""
        return len(self._tasks)

    async def stream(self, request: GenerationRequest) -> AsyncGenerator[Numbered, None]:
        """Run a generation and yield its events; closing the generator cancels it and frees its slot.

        Raises GenerationConflictError where the owner has one of this id running; what admission raises where the call
        has no seat for it yet.
        """
        if self._closed:
            raise UnavailableError("This gateway is shutting down.", retry_delay_s=1.0)
        key = (request.owner, request.generation_id)
        if key in self._tasks:
            raise conflict(request.generation_id)
        entry = entry_of_call()
        seat = self._admission.take_seat(request.caller) if entry is None else entry.seat()
        generation = Generation(
            request.allowed(),
            self._placement,
            seat,
            self._clock,
            self._render_timeout_s,
            self._observer.begin(request.model),
        )
        task = asyncio.create_task(generation.run(), name=f"generation {request.generation_id}")
        self._tasks[key], self._generations[key] = task, generation
        try:
            terminal = False
            while not terminal:
                for numbered in await generation.mailbox.take():
                    yield numbered
                    terminal = isinstance(numbered.event, Finished | Failed)
        finally:
            task.cancel()
            await asyncio.wait((task,), timeout=CANCEL_TIMEOUT_S)
            seat.close()
            del self._tasks[key], self._generations[key]

    def cancel(self, owner: str, generation_id: str) -> bool:
        """End a running generation with reason CANCELLED; whether there was one."""
        task = self._tasks.get((owner, generation_id))
        return task is not None and task.cancel()

    def fail_all(self) -> None:
        """End every generation with an error that says why, and refuse new ones: the calls are about to be cut."""
        self._closed = True
        for generation in self._generations.values():
            generation.fail(
                UnavailableError(
                    "This gateway is shutting down; the generation did not end in time.",
                    retry_delay_s=1.0,
                )
            )

    async def close(self) -> None:
        """Cancel what still runs, and wait for it. Idempotent."""
        self._closed = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_TIMEOUT_S)
