"""The GenerateMany stream between this gateway and one worker; protobuf stops here.

Every generation that the gateway has on the worker shares it. Whatever gathered while a write was under way goes into
the next message; what comes in one message is handed on within one callback of the loop, so that it leaves in one
message towards the tokenizer, too.
"""

import asyncio
from typing import TypeAlias

from grpc import aio
from hotline.v1 import worker_pb2, worker_pb2_grpc

from services.gateway import worker_wire
from services.gateway.interfaces import Load, WorkerEvent, WorkerSink, WorkerStarted, WorkerTokens
from services.gateway.logprob_wire import packed
from services.runtime.errors import InternalError, ServiceError, UnavailableError
from services.runtime.logs import get_logger

_log = get_logger()
_Input = worker_pb2.GenerateManyInput
_Call: TypeAlias = (
    "aio.StreamStreamCall[worker_pb2.GenerateManyRequest, worker_pb2.GenerateManyResponse]"
)

INPUTS_PER_MESSAGE = 4096
"""The contract's bound on one message; the rest follows in the next."""

RETRY_DELAY_S = 1.0


class StepHandle:
    """One generation on the worker; see interfaces.WorkerStream."""

    __slots__ = ("_link", "number", "open_choices", "sink")

    def __init__(
        self, link: "WorkerLink", number: int, choice_count: int, sink: WorkerSink
    ) -> None:
        self._link, self.number, self.sink = link, number, sink
        self.open_choices = choice_count

    def close(self) -> None:
        """Forget the handle here and there."""
        self._link.forget(self.number)


class WorkerLink:
    """One bidi stream; opened when the worker begins to serve, kept, and opened again where it broke.

    What waits to be written is a beginning and an end for each running generation, which admission bounds.
    """

    def __init__(self, name: str, channel: aio.Channel) -> None:
        self.name = name
        self._stub: worker_pb2_grpc.WorkerServiceAsyncStub = worker_pb2_grpc.WorkerServiceStub(
            channel
        )
        self.load = Load()
        """What the worker said last."""
        self._handles: dict[int, StepHandle] = {}
        self._waiting: list[_Input] = []
        self._something_waits = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._farewell = ""
        self._next = 0

    @property
    def open_count(self) -> int:
        """Generations under way here."""
        return len(self._handles)

    def open(self) -> None:
        """Open the stream unless it is open. It opens by itself, too, with the next generation."""
        if self._task is None or self._task.done():
            self._farewell = f"{self.name} ended its stream."
            self._task = asyncio.create_task(self._run(), name=f"worker link {self.name}")

    def begin(
        self,
        request: worker_pb2.WorkerGenerateRequest,
        request_id: str,
        choice_count: int,
        sink: WorkerSink,
    ) -> StepHandle:
        """Begin one generation; the sink is called from the next turn of the loop on."""
        self._next += 1
        handle = StepHandle(self, self._next, choice_count, sink)
        self._handles[handle.number] = handle
        self.open()
        self._queue(_Input(handle=handle.number, generate=request, request_id=request_id))
        return handle

    def forget(self, number: int) -> None:
        """Drop a handle; the worker is told unless it ended there already."""
        if self._handles.pop(number, None) is not None:
            self._queue(_Input(handle=number, abort=True))

    def lose(self) -> None:
        """The worker is silent: end the stream, and all generations on it, now."""
        if self._task is not None and not self._task.done():
            self._farewell = f"{self.name} no longer answers."
            self._task.cancel()

    async def close(self) -> None:
        """End the stream. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def _queue(self, item: _Input) -> None:
        self._waiting.append(item)
        self._something_waits.set()

    async def _run(self) -> None:
        call = self._stub.GenerateMany()
        writer = asyncio.create_task(self._write(call), name=f"worker link writer {self.name}")
        try:
            # read(), since `async for` would put a generator of its own around each message
            while isinstance(response := await call.read(), worker_pb2.GenerateManyResponse):
                self._take(response)
        except aio.AioRpcError as error:
            # Whatever broke it, no generation is to blame: what is wrong with one is told to it alone.
            code, details = str(error.code()), error.details()
            _log.warning("worker link broke", upstream=self.name, code=code, details=details)
        finally:
            call.cancel()
            writer.cancel()
            try:
                await asyncio.wait((writer,))
            finally:
                self._break()  # nothing is awaited after it: who comes then opens a new stream

    async def _write(self, call: _Call) -> None:
        try:
            while True:
                await self._something_waits.wait()
                batch = self._waiting[:INPUTS_PER_MESSAGE]
                del self._waiting[:INPUTS_PER_MESSAGE]
                if not self._waiting:
                    self._something_waits.clear()
                await call.write(worker_pb2.GenerateManyRequest(inputs=batch))
        except (aio.AioRpcError, asyncio.InvalidStateError) as error:
            _log.info("worker link writer ended", upstream=self.name, cause=type(error).__name__)

    def _take(self, response: worker_pb2.GenerateManyResponse) -> None:
        for number, cached in zip(
            response.started_handles, response.started_cached_tokens, strict=True
        ):
            self._tell(number, WorkerStarted(cached))
        if response.handles:
            self._take_runs(response)
        for end in response.ended:
            self._take_end(end)
        if response.HasField("load"):
            self.load = worker_wire.load(response.load)

    def _take_runs(self, response: worker_pb2.GenerateManyResponse) -> None:
        token_ids, begin = list(response.token_ids), 0
        logprobs = {entry.run: packed(entry.positions) for entry in response.logprobs}
        runs = zip(response.handles, response.choice_indexes, response.counts, strict=True)
        for run, (number, choice_index, count) in enumerate(runs):
            end = begin + count
            ids = token_ids[begin:end]
            if run in logprobs:
                tokens = WorkerTokens(choice_index, ids, logprobs[run])
            else:
                tokens = WorkerTokens(choice_index, ids)
            self._tell(number, tokens)
            begin = end

    def _take_end(self, end: worker_pb2.GenerateManyEnd) -> None:
        handle = self._handles.get(end.handle)
        if handle is None:
            return
        if end.HasField("finished"):
            handle.open_choices -= 1
            if not handle.open_choices:
                del self._handles[end.handle]
            self._call(handle, worker_wire.finished(end.finished))
        else:
            del self._handles[end.handle]
            self._call(handle, worker_wire.failure(end))

    def _tell(self, number: int, event: WorkerEvent) -> None:
        handle = self._handles.get(number)
        if handle is not None:  # else closed while this was on its way
            self._call(handle, event)

    def _call(self, handle: StepHandle, event: WorkerEvent | ServiceError) -> None:
        try:
            handle.sink(event)
        # One generation's fault must not end the stream of all.
        except Exception:  # noqa: BLE001
            _log.exception("a step was not taken", upstream=self.name)
            handle.close()
            handle.sink(InternalError())

    def _break(self) -> None:
        """Tell every open generation that the stream is gone; what waited belonged to them."""
        handles, self._handles = list(self._handles.values()), {}
        self._waiting.clear()
        self._something_waits.clear()
        self.load = Load()
        for handle in handles:
            handle.sink(UnavailableError(self._farewell, retry_delay_s=RETRY_DELAY_S))
