"""The gateway's side of WorkerService; protobuf stops here."""

from collections.abc import Sequence

from grpc import aio
from hotline.v1 import worker_pb2, worker_pb2_grpc

from services.gateway import worker_wire
from services.gateway.interfaces import (
    GenerationRequest,
    Load,
    Rendered,
    WorkerSink,
    WorkerStream,
)
from services.gateway.upstream import Upstream
from services.gateway.worker_link import WorkerLink
from services.runtime.logs import get_logger, request_id

_log = get_logger()

ABORT_TIMEOUT_S = 2.0


class WorkerClient:
    """One worker process; see interfaces.Worker."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream, self.name = upstream, upstream.name
        self._stub: worker_pb2_grpc.WorkerServiceAsyncStub = worker_pb2_grpc.WorkerServiceStub(
            upstream.channel
        )
        self.link = WorkerLink(upstream.name, upstream.channel)
        upstream.frozen_listeners.append(self.link.lose)
        self.status = worker_pb2.GetStatusResponse()

    @property
    def running_count(self) -> int:
        """Generations that this gateway has on it."""
        return self.link.open_count

    @property
    def load(self) -> Load:
        """How busy it says it is, over all its callers."""
        return self.link.load

    @property
    def context_tokens(self) -> int:
        """Prompt and output together."""
        return self.status.context_tokens

    @property
    def max_images(self) -> int:
        """Images in one prompt."""
        return self.status.images.max_count

    async def refresh(self) -> None:
        """Learn what the worker serves, and open the stream to it; called when it begins to serve."""
        self.status = await self._stub.GetStatus(worker_pb2.GetStatusRequest(), timeout=5)
        self.link.open()

    async def abort(self, generation_id: str) -> bool | None:
        """End a generation of any gateway; whether it ran here, None where the worker does not say in time."""
        request = worker_pb2.AbortRequest(generation_id=generation_id)
        try:
            answer = await self._stub.Abort(request, timeout=ABORT_TIMEOUT_S)
        except aio.AioRpcError as error:
            _log.info("abort unanswered", upstream=self.name, code=str(error.code()))
            return None
        return answer.aborted

    def generate(
        self,
        request: GenerationRequest,
        rendered: Rendered,
        max_tokens: int,
        time_limit_s: float,
        sink: WorkerSink,
        sampled: Sequence[int] = (),
    ) -> WorkerStream:
        """See interfaces.Worker."""
        message = worker_wire.generate_request(request, rendered, max_tokens, time_limit_s, sampled)
        return self.link.begin(message, request_id(), request.choice_count, sink)
