"""WorkerService over gRPC: check, act, stream. Errors become statuses in the interceptor."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

from grpc import aio
from hotline.v1 import worker_pb2, worker_pb2_grpc

from services.runtime.errors import DeadlineExceededError, UnimplementedError
from services.worker import wire
from services.worker.features import FeatureStore
from services.worker.generations import Generations
from services.worker.limits import Limits
from services.worker.status import Status
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

    async def Generate(
        self, request: worker_pb2.WorkerGenerateRequest, context: _Context
    ) -> AsyncGenerator[worker_pb2.WorkerGenerateEvent, None]:
        """Stream one generation."""
        self._require_serving()
        async with aclosing(self._generations.run(wire.generate_request(request))) as steps:
            async for step in steps:
                yield wire.event(step)

    def GenerateMany(
        self, request_iterator: AsyncIterator[worker_pb2.GenerateManyRequest], context: _Context
    ) -> AsyncGenerator[worker_pb2.GenerateManyResponse, None]:
        """Not in this version."""
        raise UnimplementedError("WorkerService.GenerateMany")

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
