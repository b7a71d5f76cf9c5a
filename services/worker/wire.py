"""protobuf <-> the worker's own types."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from hotline.v1 import feature_pb2, generation_pb2, sampling_pb2, worker_pb2

from services.runtime.errors import InvalidArgumentError
from services.runtime.sampling_ranges import SAMPLING_RANGES
from services.worker.engine import (
    Constraint,
    Finished,
    Grid,
    Logprob,
    Placement,
    PositionLogprobs,
    Started,
    Step,
    Tokens,
)
from services.worker.request import GenerateRequest, SamplingRequest
from services.worker.status import Status
from services.worker.upload import Header


def generate_request(message: worker_pb2.WorkerGenerateRequest) -> GenerateRequest:
    """The request as it is; validation.check judges it."""
    return GenerateRequest(
        generation_id=message.generation_id,
        prompt_token_ids=list(message.prompt_token_ids),
        placements=[_placement(feature) for feature in message.features],
        sampling=_sampling(message.sampling),
        cache_salt=message.cache_salt,
        priority=message.priority,
        time_limit_ms=message.time_limit_ms,
        adapter=message.adapter,
        output_token_ids=list(message.output_token_ids),
        trace_key=message.trace_key,
    )


def _sampling(message: sampling_pb2.SamplingParameters) -> SamplingRequest:
    present = {field.name for field, _ in message.ListFields()}
    constraint = None
    if message.HasField("structured_output"):
        constraint = _constraint(message.structured_output)
    return SamplingRequest(
        numbers={name: getattr(message, name) for name in SAMPLING_RANGES if name in present},
        stop=list(message.stop),
        stop_token_ids=list(message.stop_token_ids),
        ignore_eos=message.ignore_eos,
        logit_bias=dict(message.logit_bias),
        constraint=constraint,
    )


def _constraint(message: sampling_pb2.StructuredOutput) -> Constraint:
    kind = message.WhichOneof("constraint")
    if kind is None or (kind == "json_object" and not message.json_object):
        return Constraint("")
    if kind == "json_object":
        return Constraint(kind)
    if kind == "choice":
        return Constraint(kind, choices=list(message.choice.values))
    return Constraint(kind, getattr(message, kind))


def _placement(message: feature_pb2.FeaturePlacement) -> Placement:
    return Placement(
        digest=message.feature_digest,
        modality=_modality(message.modality),
        offset=message.offset,
        length=message.length,
        grid=_grid(message.grid),
    )


def _modality(number: int) -> str:
    return _enum_name(feature_pb2.Modality.items(), number, "MODALITY_")


def _enum_name(items: Sequence[tuple[str, int]], number: int, prefix: str) -> str:
    # Enums are open in proto3: a number without a name can come in.
    return next((name for name, value in items if value == number), str(number)).removeprefix(
        prefix
    )


def _grid(message: feature_pb2.PatchGrid) -> Grid:
    return Grid(message.t, message.h, message.w)


async def pieces(
    messages: AsyncIterator[worker_pb2.PutFeaturesRequest],
) -> AsyncGenerator[Header | bytes, None]:
    """Headers and chunks of an upload. Raises InvalidArgumentError for a message with neither."""
    async for message in messages:
        kind = message.WhichOneof("piece")
        if kind is None:
            raise InvalidArgumentError("piece", "nothing", "a header or a chunk")
        yield _header(message.header) if kind == "header" else message.chunk


def _header(message: feature_pb2.FeatureHeader) -> Header:
    return Header(
        digest=message.feature_digest,
        modality=_modality(message.modality),
        data_type=_enum_name(feature_pb2.DataType.items(), message.data_type, "DATA_TYPE_"),
        modality_number=message.modality,
        data_type_number=message.data_type,
        shape=tuple(message.shape),
        grid=_grid(message.grid),
        size_bytes=message.size_bytes,
    )


def event(step: Step) -> worker_pb2.WorkerGenerateEvent:
    """One step as an event."""
    if isinstance(step, Tokens):
        tokens = worker_pb2.WorkerTokens(
            choice_index=step.choice_index,
            position=step.position,
            token_ids=step.token_ids,
            logprobs=[position_logprobs(entry) for entry in step.logprobs],
        )
        return worker_pb2.WorkerGenerateEvent(tokens=tokens)
    if isinstance(step, Started):
        started = worker_pb2.WorkerStarted(
            prompt_tokens=step.prompt_tokens, cached_tokens=step.cached_tokens
        )
        return worker_pb2.WorkerGenerateEvent(started=started)
    return worker_pb2.WorkerGenerateEvent(finished=finished(step))


def finished(step: Finished) -> worker_pb2.WorkerFinished:
    """The end of one choice."""
    return worker_pb2.WorkerFinished(
        choice_index=step.choice_index,
        reason=generation_pb2.FinishReason.Value(f"FINISH_REASON_{step.reason.value}"),
        stop_token_id=step.stop_token_id,
        completion_tokens=step.completion_tokens,
    )


def position_logprobs(entry: PositionLogprobs) -> generation_pb2.PositionLogprobs:
    """One position."""
    return generation_pb2.PositionLogprobs(
        sampled=_logprob(entry.sampled), top=[_logprob(other) for other in entry.top]
    )


def _logprob(entry: Logprob) -> generation_pb2.TokenLogprob:
    return generation_pb2.TokenLogprob(token_id=entry.token_id, logprob=entry.logprob)


def status(status: Status) -> worker_pb2.GetStatusResponse:
    """The worker's status."""
    limits, load = status.limits, status.load
    images = limits.images
    return worker_pb2.GetStatusResponse(
        name=status.name,
        model=status.model,
        engine=status.engine,
        state=status.state,
        context_tokens=limits.context_tokens,
        vocabulary_size=limits.model.vocabulary_size,
        end_token_ids=limits.model.end_token_ids,
        images=worker_pb2.ImageLimits(
            max_count=limits.max_images, max_tokens=images.max_tokens if images else 0
        ),
        max_running=status.max_running,
        running=load.running,
        waiting=load.waiting,
        kv_usage_ratio=load.kv_usage_ratio,
        feature_bytes=status.feature_bytes,
        serving_s=status.serving_s,
        engine_restart_count=status.engine_restart_count,
    )
