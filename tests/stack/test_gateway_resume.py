"""Generations that are left, joined and resumed, over real gRPC: nothing lost, nothing twice, no second turn."""

import asyncio

import grpc
import pytest
from grpc import aio
from hotline.v1 import generation_pb2, inference_pb2
from sim_stack import LIMIT_S, hello, sim_stack, started_tokenizer, started_worker, text_of

from services.runtime.error_table import Reason
from services.runtime.status import from_rpc_error


@pytest.fixture(scope="module")
async def behind():
    worker = await started_worker(sim_step_ms=5, max_num_seqs=16)
    tokenizer = await started_tokenizer(worker.port)
    yield tokenizer, worker
    await tokenizer.stop()
    await worker.stop()


@pytest.fixture
async def stack(behind):
    async with sim_stack(*behind) as running:
        yield running


async def read(call, count: int = 0) -> list[generation_pb2.GenerationEvent]:
    """So many events, or all to the end."""
    events: list[generation_pb2.GenerationEvent] = []
    async with asyncio.timeout(LIMIT_S):
        while (event := await call.read()) is not aio.EOF:
            events.append(event)
            if len(events) == count:
                break
    return events


def resume(stack, name: str, after: int, **fields):
    request = inference_pb2.ResumeRequest(generation_id=name, after_sequence=after, **fields)
    return stack.inference.Resume(request, timeout=LIMIT_S)


async def refused(call) -> Reason:
    with pytest.raises(aio.AioRpcError) as raised:
        await read(call)
    return from_rpc_error(raised.value, "the gateway").reason


def running(stack) -> int:
    return stack.app.admission.seat_count


async def test_a_generation_that_was_left_runs_on_and_is_resumed_where_it_was_cut(stack):
    call = stack.inference.Generate(hello(120, generation_id="left"), timeout=LIMIT_S)
    before = await read(call, 20)
    call.cancel()
    await asyncio.sleep(0.1)
    assert running(stack) == 1
    first, *rest = await read(resume(stack, "left", before[-1].sequence))
    assert first.WhichOneof("event") == "heartbeat"
    assert first.heartbeat.state == generation_pb2.GENERATION_STATE_DECODING
    assert first.sequence == before[-1].sequence
    whole = await read(stack.inference.Generate(hello(120, generation_id="left"), timeout=LIMIT_S))
    assert text_of(before) + text_of(rest) == text_of(whole)
    assert rest[-1].finished.usage.completion_tokens == 120
    assert rest[-1] == whole[-1]


async def test_the_same_request_joins_the_running_generation_and_takes_no_seat(stack):
    request = hello(100, generation_id="twice")
    calls = [stack.inference.Generate(request, timeout=LIMIT_S) for _ in range(3)]
    first = await read(calls[0], 10)
    counts, others = running(stack), asyncio.gather(read(calls[1]), read(calls[2]))
    first += await read(calls[0])
    joined = await others
    assert counts == 1
    assert {text_of(events) for events in joined} == {text_of(first)}
    assert {events[0].accepted.generation_id for events in joined} == {"twice"}


async def test_another_request_under_the_same_id_is_a_conflict(stack):
    call = stack.inference.Generate(hello(100, generation_id="taken"), timeout=LIMIT_S)
    await read(call, 3)
    other = stack.inference.Generate(hello(99, generation_id="taken"), timeout=LIMIT_S)
    assert await refused(other) is Reason.GENERATION_CONFLICT
    assert text_of(await read(call))


async def test_a_request_is_the_same_whatever_it_says_of_its_reader(stack):
    request = hello(10, generation_id="same")
    events = await read(stack.inference.Generate(request, timeout=LIMIT_S))
    request.disconnect.keep_s = 5
    request.heartbeat_interval_ms = 1000
    again = await read(stack.inference.Generate(request, timeout=LIMIT_S))
    assert text_of(again) == text_of(events)
    assert again[-1] == events[-1]


async def test_a_generation_without_a_name_ends_with_its_reader(stack):
    call = stack.inference.Generate(hello(4000), timeout=LIMIT_S)
    [accepted] = await read(call, 1)
    call.cancel()
    await stack.until(lambda: running(stack) == 0)
    name = accepted.accepted.generation_id
    assert await refused(resume(stack, name, 0)) is Reason.GENERATION_NOT_FOUND


async def test_a_policy_of_cancel_ends_a_named_generation_with_its_reader(stack):
    request = hello(4000, generation_id="cancel")
    request.disconnect.cancel = True
    call = stack.inference.Generate(request, timeout=LIMIT_S)
    await read(call, 5)
    call.cancel()
    await stack.until(lambda: running(stack) == 0)


async def test_who_was_cut_off_and_asks_again_gets_an_answer_of_its_own(stack):
    request = hello(60, generation_id="again")
    request.disconnect.cancel = True
    call = stack.inference.Generate(request, timeout=LIMIT_S)
    await read(call, 5)
    call.cancel()
    events = await read(stack.inference.Generate(request, timeout=LIMIT_S))
    assert events[-1].finished.usage.completion_tokens == 60


async def test_cancel_always_cancels_and_stays_so(stack):
    request = hello(4000, generation_id="stop")
    call = stack.inference.Generate(request, timeout=LIMIT_S)
    await read(call, 5)
    call.cancel()
    cancel = inference_pb2.CancelRequest(generation_id="stop")
    assert (await stack.inference.Cancel(cancel)).cancelled
    await stack.until(lambda: running(stack) == 0)
    assert not (await stack.inference.Cancel(cancel)).cancelled
    events = await read(stack.inference.Generate(request, timeout=LIMIT_S))
    assert events[-1].finished.reason == generation_pb2.FINISH_REASON_CANCELLED


async def test_a_cursor_that_no_event_had_is_refused(stack):
    events = await read(stack.inference.Generate(hello(5, generation_id="cursor"), timeout=LIMIT_S))
    beyond = events[-1].sequence + 1
    assert await refused(resume(stack, "cursor", beyond)) is Reason.INVALID_ARGUMENT
    [state] = await read(resume(stack, "cursor", beyond - 1))
    assert state.heartbeat.state == generation_pb2.GENERATION_STATE_ENDED


async def test_what_never_was_is_not_found_and_what_is_gone_is_expired(stack):
    assert await refused(resume(stack, "never", 0)) is Reason.GENERATION_NOT_FOUND
    await read(stack.inference.Generate(hello(5, generation_id="gone"), timeout=LIMIT_S))
    stack.app.registry.kept.expire(("anonymous", "gone"))
    assert await refused(resume(stack, "gone", 0)) is Reason.GENERATION_EXPIRED


async def test_nobody_comes_back_and_the_generation_is_cancelled(stack):
    request = hello(8000, generation_id="lonely")
    request.disconnect.keep_s = 1
    call = stack.inference.Generate(request, timeout=LIMIT_S)
    await read(call, 5)
    call.cancel()
    await asyncio.sleep(0.5)
    assert running(stack) == 1
    await stack.until(lambda: running(stack) == 0)


async def test_a_resumed_call_s_deadline_ends_that_reading_only(stack):
    call = stack.inference.Generate(hello(400, generation_id="patient"), timeout=LIMIT_S)
    before = await read(call, 5)
    call.cancel()
    request = inference_pb2.ResumeRequest(
        generation_id="patient", after_sequence=before[-1].sequence
    )
    hurried = stack.inference.Resume(request, timeout=0.5)
    with pytest.raises(aio.AioRpcError) as raised:
        await read(hurried)
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    rest = await read(resume(stack, "patient", before[-1].sequence))
    assert rest[-1].finished.usage.completion_tokens == 400
    assert rest[-1].finished.reason == generation_pb2.FINISH_REASON_LENGTH
