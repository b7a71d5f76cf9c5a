"""All generations of one GenerateMany stream: each a task of its own, their steps gathered into few messages."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeAlias

from services.runtime.drain import Drain
from services.runtime.errors import (
    InternalError,
    InvalidArgumentError,
    ServiceError,
    UnavailableError,
)
from services.runtime.logs import bind_request_id, get_logger
from services.worker.engine import Finished, Step
from services.worker.load_report import LoadReports
from services.worker.outbox import Batch, Outbox
from services.worker.request import GenerateRequest

_log = get_logger()

METHOD = "/hotline.v1.WorkerService/GenerateMany"
"""A generation's log line has the form of a call's."""

NEWS_LIMIT = 4096
"""Things to tell a peer that does not read, beyond which none of its inputs is read."""


@dataclass(frozen=True)
class Begin:
    """Begin a generation."""

    handle: int
    request: GenerateRequest
    request_id: str


@dataclass(frozen=True)
class Abort:
    """End a generation and say nothing more of it."""

    handle: int


Act: TypeAlias = Begin | Abort
"""What a gateway wants of one of its generations."""


class StepStream:
    """One stream's generations; they end with it, however it ends.

    Args:
        run: one generation; see Generations.run.
        drain: once asked for, nothing begins any more, and the stream ends when nothing runs on it.
        loads: tells the stream of the engine's load.
    """

    def __init__(
        self,
        run: Callable[[GenerateRequest], AsyncGenerator[Step, None]],
        drain: Drain,
        loads: LoadReports,
    ) -> None:
        self._run, self._drain, self._loads = run, drain, loads
        self._outbox = Outbox(NEWS_LIMIT)
        self._open: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        """The open ones, and those that were aborted and still unwind."""

    async def batches(
        self, acts: AsyncGenerator[Sequence[Act], None]
    ) -> AsyncGenerator[Batch, None]:
        """Do what comes, yield what becomes ready; while a yield waits for a slow peer, the next batch gathers.

        The end of `acts` lets what runs run on; what `acts` raises is raised here, and that, as well as the closing
        of this generator, aborts everything at once.
        """
        outbox, filled = self._outbox, self._outbox.filled
        reader = asyncio.create_task(self._read(acts), name="step stream reader")
        report = self._loads.open(filled.set)
        self._drain.waiting.add(filled)
        filled.set()  # the first message tells the load
        try:
            while not self._is_over(reader):
                await filled.wait()
                batch = outbox.take()
                batch.load = report.take()
                if batch or batch.load is not None:
                    yield batch
        finally:
            self._drain.waiting.discard(filled)
            self._loads.forget(report)
            tasks = (reader, *self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            if not reader.cancelled():
                reader.exception()  # heard of already, or of no interest any more

    def _is_over(self, reader: asyncio.Task[None]) -> bool:
        if reader.done():
            reader.result()  # raises what ended the acts
        if self._tasks or self._outbox.filled.is_set():
            return False
        return reader.done() or self._drain.asked

    async def _read(self, acts: AsyncGenerator[Sequence[Act], None]) -> None:
        try:
            async with aclosing(acts):
                async for several in acts:
                    for act in several:
                        if isinstance(act, Begin):
                            self._begin(act)
                        else:
                            self._abort(act.handle)
                    await self._outbox.has_room.wait()
        finally:
            self._outbox.filled.set()

    def _begin(self, act: Begin) -> None:
        if act.handle == 0 or act.handle in self._open:
            raise InvalidArgumentError("handle", act.handle, "above 0 and not open on this stream")
        name = f"generation {act.request.generation_id}"
        task = asyncio.create_task(self._generate(act), name=name)
        self._open[act.handle] = task
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _abort(self, handle: int) -> None:
        task = self._open.pop(handle, None)
        if task is not None:
            task.cancel()
        self._outbox.forget(handle)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not self._tasks:
            self._outbox.filled.set()  # the stream may be waiting to end

    async def _generate(self, act: Begin) -> None:
        bind_request_id(act.request_id)
        begin_s, outcome = time.monotonic(), "OK"
        self._loads.changed()
        try:
            if self._drain.asked:
                raise UnavailableError("This worker is shutting down.", retry_delay_s=1.0)
            await self._relay(act)
        except asyncio.CancelledError:
            outcome = "CANCELLED"
            raise
        except ServiceError as error:
            outcome = error.reason.value
            self._fail(act.handle, error)
        # The top of a task: this generation's peer must hear of an end, and the log of the cause.
        except Exception:  # noqa: BLE001
            outcome = InternalError.reason.value
            _log.exception("unexpected", generation_id=act.request.generation_id)
            self._fail(act.handle, InternalError())
        finally:
            self._loads.changed()
            _log.info(
                "generation",
                method=METHOD,
                generation_id=act.request.generation_id,
                code=outcome,
                elapsed_ms=round((time.monotonic() - begin_s) * 1000, 1),
            )

    async def _relay(self, act: Begin) -> None:
        handle, outbox = act.handle, self._outbox
        last: Finished | None = None
        async with aclosing(self._run(act.request)) as steps:
            async for step in steps:
                if last is not None:
                    outbox.put(handle, last)
                    last = None
                if isinstance(step, Finished):
                    last = step
                else:
                    outbox.put(handle, step)
        # The last end is told when the slot is free and the id may be used again.
        self._open.pop(handle, None)
        if last is not None:
            outbox.put(handle, last)

    def _fail(self, handle: int, error: ServiceError) -> None:
        self._open.pop(handle, None)
        self._outbox.fail(handle, error)
