"""The gateway's side of WorkerService; protobuf stops here."""

from collections.abc import AsyncGenerator

from grpc import aio
from hotline.v1 import generation_pb2, sampling_pb2, worker_pb2, worker_pb2_grpc

from services.gateway.events import Finish
from services.gateway.interfaces import (
    GenerationRequest,
    Rendered,
    WorkerEvent,
    WorkerFinished,
    WorkerStarted,
    WorkerTokens,
)
from services.gateway.upstream import Upstream
from services.runtime.logs import request_metadata
from services.runtime.status import from_rpc_error

CALL_MARGIN_S = 5.0
"""The call's own deadline lies so far behind the time limit that the worker keeps."""


class WorkerClient:
    """One worker process."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream, self.name = upstream, upstream.name
        self._stub: worker_pb2_grpc.WorkerServiceAsyncStub = worker_pb2_grpc.WorkerServiceStub(
            upstream.channel
        )
        self.status = worker_pb2.GetStatusResponse()
        self.running_count = 0
        """Generations that this gateway has on it."""

    @property
    def context_tokens(self) -> int:
        """Prompt and output together."""
        return self.status.context_tokens

    @property
    def max_images(self) -> int:
        """Images in one prompt."""
        return self.status.images.max_count

    async def refresh(self) -> None:
        """Learn what the worker serves; called when it begins to."""
        self.status = await self._stub.GetStatus(worker_pb2.GetStatusRequest(), timeout=5)

    async def generate(
        self, request: GenerationRequest, rendered: Rendered, max_tokens: int, time_limit_s: float
    ) -> AsyncGenerator[WorkerEvent, None]:
        """See interfaces.Worker."""
        sampling = sampling_pb2.SamplingParameters()
        sampling.CopyFrom(request.sampling)
        sampling.ClearField("stop")
        sampling.max_tokens = max_tokens
        if sampling.HasField("min_tokens"):
            # The room may be smaller than what was asked for.
            sampling.min_tokens = min(sampling.min_tokens, max_tokens)
        call = self._stub.Generate(
            worker_pb2.WorkerGenerateRequest(
                generation_id=request.generation_id,
                prompt_token_ids=rendered.token_ids,
                features=rendered.features,
                sampling=sampling,
                cache_salt=request.owner,
                priority=request.priority,
                time_limit_ms=round(time_limit_s * 1000),
            ),
            timeout=time_limit_s + CALL_MARGIN_S,
            metadata=request_metadata(),
        )
        self.running_count += 1
        try:
            async for event in call:
                yield _event(event)
        except aio.AioRpcError as error:
            raise from_rpc_error(error, self.name) from error
        finally:
            self.running_count -= 1
            call.cancel()


def _event(event: worker_pb2.WorkerGenerateEvent) -> WorkerEvent:
    kind = event.WhichOneof("event")
    if kind == "tokens":
        return WorkerTokens(event.tokens.choice_index, event.tokens.token_ids)
    if kind == "started":
        return WorkerStarted(event.started.cached_tokens)
    finished = event.finished
    name = generation_pb2.FinishReason.Name(finished.reason)
    token = finished.stop_token_id if finished.HasField("stop_token_id") else None
    return WorkerFinished(
        finished.choice_index,
        Finish(name.removeprefix("FINISH_REASON_")),
        token,
        finished.completion_tokens,
    )
