"""GenerateMany messages to the worker's own types and back."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from hotline.v1 import error_pb2, worker_pb2

from services.runtime.errors import InvalidArgumentError, ServiceError
from services.runtime.status import MESSAGE_BYTES
from services.worker import wire
from services.worker.engine import Finished
from services.worker.outbox import Batch
from services.worker.step_stream import Abort, Act, Begin

MAX_INPUTS = 4096


async def acts(
    requests: AsyncIterator[worker_pb2.GenerateManyRequest],
) -> AsyncGenerator[Sequence[Act], None]:
    """What each message wants. Raises InvalidArgumentError, which ends the stream."""
    async for request in requests:
        if len(request.inputs) > MAX_INPUTS:
            raise InvalidArgumentError(
                "inputs", f"{len(request.inputs)} items", f"at most {MAX_INPUTS} items"
            )
        yield [_act(index, item) for index, item in enumerate(request.inputs)]


def _act(index: int, item: worker_pb2.GenerateManyInput) -> Act:
    kind = item.WhichOneof("act")
    if kind == "generate":
        return Begin(item.handle, wire.generate_request(item.generate), item.request_id)
    if kind == "abort" and item.abort:
        return Abort(item.handle)
    raise InvalidArgumentError(
        f"inputs[{index}].act", kind or "nothing", "generate, or abort: true"
    )


def response(batch: Batch) -> worker_pb2.GenerateManyResponse:
    """One message with all of a batch."""
    message = worker_pb2.GenerateManyResponse()
    if batch.runs:
        _add_runs(message, batch)
    for handle, step in batch.started:
        message.started_handles.append(handle)
        message.started_cached_tokens.append(step.cached_tokens)
    if batch.ended:
        message.ended.extend(_end(handle, end) for handle, end in batch.ended)
    if batch.load is not None:
        message.load.running = batch.load.running
        message.load.waiting = batch.load.waiting
        message.load.kv_usage_ratio = batch.load.kv_usage_ratio
    return message


def _add_runs(message: worker_pb2.GenerateManyResponse, batch: Batch) -> None:
    # Whole lists at once: an append for each of some hundred runs would cost several times as much.
    handles, choice_indexes = zip(*batch.runs, strict=True)
    runs = batch.runs.values()
    message.handles.extend(handles)
    message.choice_indexes.extend(choice_indexes)
    message.positions.extend([run.position for run in runs])
    message.counts.extend([len(run.token_ids) for run in runs])
    message.token_ids.extend([token_id for run in runs for token_id in run.token_ids])
    for index, run in enumerate(runs):
        if run.logprobs:
            message.logprobs.add(
                run=index, positions=[wire.position_logprobs(entry) for entry in run.logprobs]
            )


def _end(handle: int, end: Finished | ServiceError) -> worker_pb2.GenerateManyEnd:
    if isinstance(end, Finished):
        return worker_pb2.GenerateManyEnd(handle=handle, finished=wire.finished(end))
    return worker_pb2.GenerateManyEnd(
        handle=handle,
        failed=error_pb2.ErrorReason.Value(f"ERROR_REASON_{end.reason.value}"),
        message=end.message[:MESSAGE_BYTES],
        metadata={key: value[:MESSAGE_BYTES] for key, value in end.metadata.items()},
        retry_delay_ms=round((end.retry_delay_s or 0) * 1000),
    )
