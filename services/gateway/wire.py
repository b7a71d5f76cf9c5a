"""hotline.v1 <-> the gateway's own types, for native clients."""

import re
import uuid

from google.protobuf import duration_pb2, struct_pb2, timestamp_pb2
from hotline.v1 import error_pb2, generation_pb2, inference_pb2, model_pb2

from services.gateway.caller import Caller
from services.gateway.events import (
    Accepted,
    Action,
    ChoiceEnd,
    Event,
    Failed,
    Finish,
    Finished,
    Heartbeat,
    Numbered,
    Reasoning,
    Started,
    Text,
    ToolCall,
    Usage,
)
from services.gateway.interfaces import GenerationRequest
from services.gateway.logprob_wire import messages
from services.gateway.native_wire import check_native_fields
from services.gateway.parameters import check_conversation_size
from services.gateway.pool import ServedModel
from services.gateway.prompt_wire import raw_prompt
from services.gateway.sampling_wire import check_sampling, follows_from_ids
from services.gateway.tool_wire import check_render_tools, force_tools, tool_use
from services.runtime.errors import InvalidArgumentError
from services.runtime.sampling_ranges import PRIORITIES

MAX_RENDER_BYTES = 160 * 1024
"""Template variables and tools."""
_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def new_generation_id() -> str:
    """An id for a generation whose client sent none: 32 hex digits."""
    return uuid.uuid4().hex


def check_generation_id(generation_id: str, field: str = "generation_id") -> None:
    """Raises InvalidArgumentError for what cannot be a generation's id."""
    if not _ID.fullmatch(generation_id):
        raise InvalidArgumentError(field, generation_id, "1 to 128 characters of [A-Za-z0-9._:-]")


def generation_request(
    request: inference_pb2.GenerateRequest, model: str, caller: Caller, deadline_s: float
) -> GenerationRequest:
    """Check a native request. Raises InvalidArgumentError.

    Args:
        model: the canonical name that `request.model` stands for.
        deadline_s: on the gateway's monotonic clock.
    """
    if request.generation_id:
        check_generation_id(request.generation_id)
    check_native_fields(request)
    if not PRIORITIES.holds(request.priority):
        raise InvalidArgumentError("priority", request.priority, str(PRIORITIES))
    prompt = raw_prompt(request)
    if prompt is None:
        check_conversation(request)
    sampling = request.sampling
    check_sampling(sampling)
    forced = force_tools(request)
    return GenerationRequest(
        generation_id=request.generation_id or new_generation_id(),
        caller=caller,
        model=model,
        messages=request.messages,
        render_options=request.render,
        sampling=sampling,
        choice_count=sampling.n if sampling.HasField("n") else 1,
        stop=tuple(sampling.stop),
        split_reasoning=request.render.split_reasoning and prompt is None,
        ignore_eos=sampling.ignore_eos,
        max_tokens=sampling.max_tokens if sampling.HasField("max_tokens") else None,
        priority=request.priority,
        deadline_s=deadline_s,
        prompt=prompt,
        field_names=forced,
        tool_use=tool_use(request.render),
        is_movable=follows_from_ids(sampling),
    )


def check_conversation(
    request: inference_pb2.GenerateRequest | inference_pb2.CountTokensRequest,
) -> None:
    """Raises InvalidArgumentError for too many messages or parts, or too much in `render`."""
    part_counts = (len(message.parts.parts) for message in request.messages)
    check_conversation_size(len(request.messages), part_counts)
    size = request.render.ByteSize()
    if size > MAX_RENDER_BYTES:
        raise InvalidArgumentError("render", f"{size} bytes", f"at most {MAX_RENDER_BYTES} bytes")
    check_render_tools(request.render)


def event(numbered: Numbered) -> generation_pb2.GenerationEvent:
    """One event for a native client."""
    message = _event(numbered.event)
    message.sequence = numbered.sequence
    return message


def _event(event: Event) -> generation_pb2.GenerationEvent:
    message = generation_pb2.GenerationEvent(choice_index=getattr(event, "choice_index", 0))
    match event:
        case Text(text=text, logprobs=logprobs):
            message.text.text = text
            if logprobs:
                message.text.logprobs.extend(messages(logprobs))
        case Reasoning(text=text):
            message.reasoning.text = text
        case ToolCall():
            message.tool_call.index = event.index
            message.tool_call.id = event.id
            message.tool_call.name = event.name
            message.tool_call.arguments = event.arguments
        case Accepted():
            message.accepted.generation_id = event.generation_id
            message.accepted.model = event.model
            message.accepted.prompt_tokens = event.prompt_tokens
            message.accepted.queue_position = event.queue_position
            message.accepted.session_id = event.session_id
        case Started():
            message.started.worker = event.worker
            message.started.cached_tokens = event.cached_tokens
        case Action():
            message.action.name = event.name
            arguments = struct_pb2.Struct()
            arguments.update(dict(event.arguments))
            message.action.arguments.CopyFrom(arguments)
        case Heartbeat():
            message.heartbeat.state = generation_pb2.GenerationState.Value(
                f"GENERATION_STATE_{event.state.value}"
            )
            message.heartbeat.queue_position = event.queue_position
        case Finished():
            message.finished.CopyFrom(_finished(event))
        case Failed():
            message.failed.CopyFrom(_failed(event))
    return message


def _finished(event: Finished) -> generation_pb2.FinishedEvent:
    first, timings = event.choices[0], event.timings
    return generation_pb2.FinishedEvent(
        reason=_reason(first.reason),
        stop_match=first.stop_match,
        usage=_usage(event.usage),
        timings=generation_pb2.Timings(
            queue=_duration(timings.queue_s),
            render=_duration(timings.render_s),
            prefill=_duration(timings.prefill_s),
            decode=_duration(timings.decode_s),
        ),
        choices=[_choice(end) for end in event.choices] if len(event.choices) > 1 else (),
        turn_committed=event.turn_committed,
    )


def _choice(end: ChoiceEnd) -> generation_pb2.ChoiceFinish:
    return generation_pb2.ChoiceFinish(
        choice_index=end.choice_index, reason=_reason(end.reason), stop_match=end.stop_match
    )


def _failed(event: Failed) -> generation_pb2.FailedEvent:
    error = event.error
    failed = generation_pb2.FailedEvent(
        reason=error_pb2.ErrorReason.Value(f"ERROR_REASON_{error.reason.value}"),
        message=error.message,
        retryable=error.row.retryable,
        usage=_usage(event.usage),
    )
    if error.retry_delay_s is not None:
        failed.retry_delay.CopyFrom(_duration(error.retry_delay_s))
    return failed


def _reason(reason: Finish) -> generation_pb2.FinishReason.ValueType:
    return generation_pb2.FinishReason.Value(f"FINISH_REASON_{reason.value}")


def _usage(usage: Usage) -> generation_pb2.Usage:
    return generation_pb2.Usage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=usage.cached_tokens,
    )


def _duration(seconds: float) -> duration_pb2.Duration:
    duration = duration_pb2.Duration()
    duration.FromMicroseconds(round(seconds * 1e6))
    return duration


def model(served: ServedModel) -> model_pb2.Model:
    """One model for ModelService."""
    created = timestamp_pb2.Timestamp(seconds=served.create_time_s)
    return model_pb2.Model(
        name=served.name,
        aliases=served.aliases,
        context_tokens=served.context_tokens,
        max_images=served.max_images,
        engine=served.engine,
        ready=served.ready,
        create_time=created,
    )
