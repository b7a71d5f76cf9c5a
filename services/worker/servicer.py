"""WorkerService over gRPC: check, act, stream. Errors become statuses in the interceptor."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

from grpc import aio
from hotline.v1 import worker_pb2, worker_pb2_grpc

from services.runtime.drain import Drain
from services.runtime.errors import DeadlineExceededError
from services.worker import step_wire, wire
from services.worker.engine import Step
from services.worker.features import FeatureStore
from services.worker.generations import Generations
from services.worker.limits import Limits
from services.worker.load_report import LoadReports
from services.worker.request import GenerateRequest
from services.worker.status import Status
from services.worker.step_stream import StepStream
from services.worker.upload import receive

UPLOAD_TIMEOUT_S = 60.0
"""Longest PutFeatures call; a peer that stalls gives its room back."""

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"


class WorkerServicer(worker_pb2_grpc.WorkerServiceServicer):
    """See worker.proto."""

    def __init__(
        self,
        generations: Generations,
        store: FeatureStore,
        limits: Limits,
        require_serving: Callable[[], None],
        status: Callable[[], Status],
    ) -> None:
        self._generations, self._store, self._limits = generations, store, limits
        self._require_serving, self._status = require_serving, status
        self._drain = Drain()
        self._loads = LoadReports(lambda: status().load, time.monotonic)

    def drain(self) -> None:
        """End GenerateMany streams as soon as nothing runs on them; a gateway's would never end by itself."""
        self._drain.ask()

    async def Generate(
        self, request: worker_pb2.WorkerGenerateRequest, context: _Context
    ) -> AsyncGenerator[worker_pb2.WorkerGenerateEvent, None]:
        """Stream one generation."""
        self._require_serving()
        self._loads.changed()
        try:
            async with aclosing(self._generations.run(wire.generate_request(request))) as steps:
                async for step in steps:
                    yield wire.event(step)
        finally:
            self._loads.changed()

    async def GenerateMany(
        self, request_iterator: AsyncIterator[worker_pb2.GenerateManyRequest], context: _Context
    ) -> AsyncGenerator[worker_pb2.GenerateManyResponse, None]:
        """Stream all generations of a gateway."""
        self._require_serving()
        stream = StepStream(self._run, self._drain, self._loads)
        async with aclosing(stream.batches(step_wire.acts(request_iterator))) as batches:
            async for batch in batches:
                yield step_wire.response(batch)

    def _run(self, request: GenerateRequest) -> AsyncGenerator[Step, None]:
        self._require_serving()  # may have changed since the stream began
        return self._generations.run(request)

    async def Abort(
        self, request: worker_pb2.AbortRequest, context: _Context
    ) -> worker_pb2.AbortResponse:
        """End a generation of any caller."""
        return worker_pb2.AbortResponse(aborted=self._generations.abort(request.generation_id))

    async def PutFeatures(
        self, request_iterator: AsyncIterator[worker_pb2.PutFeaturesRequest], context: _Context
    ) -> worker_pb2.PutFeaturesResponse:
        """Store feature tensors."""
        self._require_serving()
        try:
            async with (
                asyncio.timeout(UPLOAD_TIMEOUT_S),
                aclosing(wire.pieces(request_iterator)) as pieces,
            ):
                digests = await receive(pieces, self._store, self._limits)
        except TimeoutError:
            raise DeadlineExceededError(
                f"PutFeatures: not complete after {UPLOAD_TIMEOUT_S:g} s, the limit of one call."
            ) from None
        return worker_pb2.PutFeaturesResponse(feature_digests=digests)

    async def GetStatus(
        self, request: worker_pb2.GetStatusRequest, context: _Context
    ) -> worker_pb2.GetStatusResponse:
        """Answered in every state."""
        return wire.status(self._status())
