"""The relay over real gRPC: every token once and in order, slow readers, overload, deaths of what is behind."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hotline.v1 import error_pb2, generation_pb2, inference_pb2_grpc
from sim_stack import (
    LIMIT_S,
    MODEL,
    hello,
    sim_stack,
    started_tokenizer,
    started_worker,
    text_of,
)

from services.runtime.status import from_rpc_error
from services.worker.model import read_model
from services.worker.sim_tokens import trace_token


@pytest.fixture(scope="module")
async def behind():
    """One worker and one tokenizer for the tests that kill nothing."""
    worker = await started_worker(sim_step_ms=2, max_num_seqs=8, max_waiting=0)
    tokenizer = await started_tokenizer(worker.port)
    yield tokenizer, worker
    await tokenizer.stop()
    await worker.stop()


@pytest.fixture
async def stack(behind):
    async with sim_stack(*behind) as running:
        yield running


async def collected(call) -> list[generation_pb2.GenerationEvent]:
    """The events from here to the end; by read(), since a call may be read by one API only."""
    events = []
    async with asyncio.timeout(LIMIT_S):
        while (event := await call.read()) is not aio.EOF:
            events.append(event)
    return events


def expected_text(generation_id: str, count: int) -> str:
    """What the simulator's ids spell, by transformers itself."""
    from tokenizers import Tokenizer

    ordinary = read_model(MODEL, {}).ordinary_ids
    ids = [trace_token(generation_id, 0, position, ordinary) for position in range(count)]
    return Tokenizer.from_file(str(MODEL / "tokenizer.json")).decode(ids, skip_special_tokens=True)


async def test_every_token_arrives_once_and_in_order(stack):
    calls = [
        collected(stack.inference.Generate(hello(100, generation_id=f"all-{n}"), timeout=LIMIT_S))
        for n in range(8)
    ]
    for number, events in enumerate(await asyncio.gather(*calls)):
        assert text_of(events) == expected_text(f"all-{number}", 100)
        assert events[-1].finished.usage.completion_tokens == 100
        assert events[-1].finished.reason == generation_pb2.FINISH_REASON_LENGTH


async def test_a_reader_that_stops_holds_up_nobody_and_gets_the_rest_merged():
    count = 8000
    worker = await started_worker(sim_step_ms=0)
    tokenizer = await started_tokenizer(worker.port)
    narrow = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 4096)]
    try:
        async with sim_stack(tokenizer, worker) as stack:
            address = f"127.0.0.1:{stack.gateway.port}"
            async with aio.insecure_channel(address, options=narrow) as channel:
                call = inference_pb2_grpc.InferenceServiceStub(channel).Generate(
                    hello(count, generation_id="slow"), timeout=LIMIT_S
                )
                events = [await call.read()]
                upstream = stack.app.pool.workers[0]
                await stack.until(lambda: upstream.running_count)
                await stack.until(lambda: not upstream.running_count)
                events += await collected(call)
            assert text_of(events) == expected_text("slow", count)
            assert len(events) < count / 2
            assert max(len(event.text.text) for event in events) > 1000
    finally:
        await tokenizer.stop()
        await worker.stop()


async def test_who_finds_the_waiting_room_full_is_told_when_to_come_back(behind):
    async with sim_stack(*behind, max_running=1, max_waiting=0) as stack:
        first = stack.inference.Generate(hello(4000), timeout=LIMIT_S)
        await first.read()
        with pytest.raises(aio.AioRpcError) as refused:
            await collected(stack.inference.Generate(hello(1), timeout=LIMIT_S))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert from_rpc_error(refused.value, "gateway").retry_delay_s
        first.cancel()
        await stack.until(lambda: stack.app.admission.running_count == 0)
        events = await collected(stack.inference.Generate(hello(1), timeout=LIMIT_S))
        assert events[-1].HasField("finished")


async def test_a_generation_id_that_runs_is_refused(stack):
    first = stack.inference.Generate(hello(4000, generation_id="twice"), timeout=LIMIT_S)
    await first.read()
    with pytest.raises(aio.AioRpcError) as refused:
        await collected(stack.inference.Generate(hello(1, generation_id="twice"), timeout=LIMIT_S))
    assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS
    first.cancel()


async def test_the_call_that_is_cancelled_leaves_nothing_in_the_gateway(stack):
    call = stack.inference.Generate(hello(4000), timeout=LIMIT_S)
    await call.read()
    call.cancel()
    await stack.until(lambda: stack.app.registry.running_count == 0)
    assert all(tokenizer.link.open_count == 0 for tokenizer in stack.app.pool.tokenizers)


async def test_a_request_that_the_worker_refuses_fails_with_its_words(stack):
    request = hello(5)
    request.sampling.structured_output.regex = "a+"
    events = await collected(stack.inference.Generate(request, timeout=LIMIT_S))
    failed = events[-1].failed
    assert failed.reason == error_pb2.ERROR_REASON_UNIMPLEMENTED
    assert "structured output on the simulator" in failed.message
    assert not failed.retryable


@asynccontextmanager
async def mortal():
    """Processes of its own, for a test that kills one of them."""
    worker = await started_worker(sim_step_ms=5)
    tokenizer = await started_tokenizer(worker.port)
    async with sim_stack(tokenizer, worker) as stack:
        try:
            yield stack
        finally:
            await stack.tokenizer.stop()
            await stack.worker.stop()


async def overall_health(stack) -> int:
    stub = health_pb2_grpc.HealthStub(stack.channel)
    return (await stub.Check(health_pb2.HealthCheckRequest(), timeout=5)).status


async def test_a_worker_that_goes_fails_its_streams_with_a_reason_and_may_come_back():
    async with mortal() as stack:
        request = hello(4000)
        request.sampling.seed = 1  # whose sampler cannot go on elsewhere
        call = stack.inference.Generate(request, timeout=LIMIT_S)
        events = [await call.read() for _ in range(4)]
        address = f"127.0.0.1:{stack.worker.port}"
        await stack.worker.stop()
        events += await collected(call)
        failed = events[-1].failed
        assert failed.reason in (
            error_pb2.ERROR_REASON_UNAVAILABLE,
            error_pb2.ERROR_REASON_CANCELLED,
            error_pb2.ERROR_REASON_ENGINE_DEAD,
        )
        await stack.until_ready(False)
        assert await overall_health(stack) == health_pb2.HealthCheckResponse.NOT_SERVING
        with pytest.raises(aio.AioRpcError) as refused:
            await collected(stack.inference.Generate(hello(1), timeout=LIMIT_S))
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        stack.worker = await started_worker(address)
        await stack.until_ready()
        assert await overall_health(stack) == health_pb2.HealthCheckResponse.SERVING
        assert (await collected(stack.inference.Generate(hello(3), timeout=LIMIT_S)))[-1].finished


async def test_a_tokenizer_that_goes_fails_its_streams_and_frees_the_worker():
    async with mortal() as stack:
        call = stack.inference.Generate(hello(4000), timeout=LIMIT_S)
        events = [await call.read() for _ in range(4)]
        address = f"127.0.0.1:{stack.tokenizer.port}"
        await stack.tokenizer.stop()
        events += await collected(call)
        assert events[-1].HasField("failed")
        assert events[-1].failed.retryable
        await stack.until(lambda: stack.app.pool.workers[0].running_count == 0)
        stack.tokenizer = await started_tokenizer(stack.worker.port, address)
        await stack.until_ready()
        assert (await collected(stack.inference.Generate(hello(3), timeout=LIMIT_S)))[-1].finished


async def test_a_gateway_that_stops_without_grace_ends_its_streams_typed():
    async with mortal() as stack:
        call = stack.inference.Generate(hello(4000), timeout=LIMIT_S)
        await call.read()
        stopping = asyncio.ensure_future(stack.gateway.stop())
        try:
            assert (await collected(call))[-1].failed.retryable
        except aio.AioRpcError as cut:  # the event had no time: then the status is the end
            assert cut.code() is not grpc.StatusCode.OK  # noqa: PT017
        await asyncio.wait_for(stopping, LIMIT_S)
