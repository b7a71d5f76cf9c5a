"""hotline.v1 <-> the gateway's own types, on the way to a worker and back."""

from collections.abc import Sequence

from hotline.v1 import error_pb2, generation_pb2, sampling_pb2, worker_pb2

from services.gateway.cache_salt import owner_salt
from services.gateway.events import Finish
from services.gateway.interfaces import GenerationRequest, Load, Rendered, WorkerFinished
from services.gateway.worker_id import worker_generation_id
from services.runtime.error_table import Reason
from services.runtime.errors import ServiceError, rebuilt

MAX_TRACE_KEY = 64
"""The contract's bound, in bytes; generation ids are ASCII."""
_FINISHES = {
    number: Finish(name.removeprefix("FINISH_REASON_"))
    for name, number in generation_pb2.FinishReason.items()
    if number
}
_REASONS = {
    number: Reason(name.removeprefix("ERROR_REASON_"))
    for name, number in error_pb2.ErrorReason.items()
    if number
}


def generate_request(
    request: GenerationRequest,
    rendered: Rendered,
    max_tokens: int,
    time_limit_s: float,
    sampled: Sequence[int] = (),
) -> worker_pb2.WorkerGenerateRequest:
    """One generation for a worker, which knows no text: stop strings stay behind.

    Args:
        sampled: ids from another worker, which count as sampled.
    """
    sampling = sampling_pb2.SamplingParameters()
    sampling.CopyFrom(request.sampling)
    sampling.ClearField("stop")
    sampling.max_tokens = max_tokens
    if sampling.HasField("min_tokens"):
        # The room may be smaller than what was asked for.
        sampling.min_tokens = min(sampling.min_tokens, max_tokens)
    return worker_pb2.WorkerGenerateRequest(
        generation_id=worker_generation_id(request.owner, request.generation_id),
        trace_key=request.generation_id[:MAX_TRACE_KEY],
        prompt_token_ids=rendered.token_ids,
        features=rendered.features,
        sampling=sampling,
        cache_salt=(request.turn and request.turn.cache_salt) or owner_salt(request.owner),
        priority=request.priority,
        time_limit_ms=round(time_limit_s * 1000),
        output_token_ids=sampled,
    )


def finished(message: worker_pb2.WorkerFinished) -> WorkerFinished:
    """The end of one choice."""
    return WorkerFinished(
        message.choice_index,
        _FINISHES[message.reason],
        message.stop_token_id if message.HasField("stop_token_id") else None,
        message.completion_tokens,
    )


def failure(end: worker_pb2.GenerateManyEnd) -> ServiceError:
    """The error of a generation that was refused or failed."""
    reason = _REASONS.get(end.failed, Reason.INTERNAL)
    delay_s = end.retry_delay_ms / 1000 if end.retry_delay_ms else None
    return rebuilt(reason, end.message, dict(end.metadata), delay_s)


def load(message: worker_pb2.WorkerLoad) -> Load:
    """How busy a worker says it is."""
    return Load(message.running, message.waiting, message.kv_usage_ratio)
