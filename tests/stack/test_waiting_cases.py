"""Cases 24 and 26: deadlines wherever a generation is, and more requests than can wait, through a real edge."""

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
import psutil
import pytest
from edge_process import free_port, running_envoy, until_serving
from grpc import aio
from hotline.v1 import error_pb2, generation_pb2, inference_pb2_grpc
from sim_stack import LIMIT_S, hello, sim_stack, started_tokenizer, started_worker

from services.cli.edge import EdgeSettings
from services.runtime.status import from_rpc_error

MIB = 2**20
SOON_S = 0.6
"""A deadline that is near, but not so near that a busy machine misses it by itself."""


@asynccontextmanager
async def whole_stack(worker_fields: dict[str, object], **gateway_fields: object):
    async with AsyncExitStack() as cleanup:
        worker = await started_worker(**worker_fields)
        cleanup.push_async_callback(worker.stop)
        tokenizer = await started_tokenizer(worker.port)
        cleanup.push_async_callback(tokenizer.stop)
        yield await cleanup.enter_async_context(sim_stack(tokenizer, worker, **gateway_fields))


async def ended(call: "aio.UnaryStreamCall") -> tuple[list[generation_pb2.GenerationEvent], object]:
    """Its events, and the code of its end."""
    events = []
    try:
        async for event in call:
            events.append(event)
    except aio.AioRpcError as error:
        return events, error.code()
    return events, grpc.StatusCode.OK


async def test_case_24_a_deadline_in_the_queue_ends_the_wait_and_holds_nothing():
    async with whole_stack({}, max_running=1) as stack:
        first = stack.inference.Generate(hello(4000), timeout=LIMIT_S)
        await first.read()
        admission = stack.app.admission
        waiting = stack.inference.Generate(hello(1), timeout=SOON_S)
        await stack.until(lambda: admission.waiting_count == 1)
        assert await ended(waiting) == ([], grpc.StatusCode.DEADLINE_EXCEEDED)
        await stack.until(lambda: (admission.waiting_count, admission.seat_count) == (0, 1))
        first.cancel()


async def test_case_24_a_deadline_in_prefill_is_deadline_exceeded_and_frees_the_slot():
    slow = {"sim_prefill_tokens_per_s": 1000, "max_num_batched_tokens": 128, "max_model_len": 2048}
    async with whole_stack(slow) as stack:
        long = hello(5)
        long.messages[0].text = "Read this. " * 150
        # It comes a little before the client's own clock would end the call.
        events, code = await ended(stack.inference.Generate(long, timeout=SOON_S))
        assert not any(event.HasField("text") for event in events)
        assert events[-1].failed.reason == error_pb2.ERROR_REASON_DEADLINE_EXCEEDED
        assert code is grpc.StatusCode.OK
        await stack.until(lambda: stack.app.admission.seat_count == 0)
        await stack.until(lambda: stack.app.pool.workers[0].running_count == 0)


async def test_case_24_a_deadline_in_decode_is_time_limit_with_the_text_so_far():
    async with whole_stack({"sim_step_ms": 20}) as stack:
        events, code = await ended(stack.inference.Generate(hello(4000), timeout=SOON_S))
        assert code is grpc.StatusCode.OK
        end = events[-1].finished
        assert end.reason == generation_pb2.FINISH_REASON_TIME_LIMIT
        assert 0 < end.usage.completion_tokens < 4000
        assert any(event.HasField("text") for event in events)
        await stack.until(lambda: stack.app.admission.seat_count == 0)
        await stack.until(lambda: stack.app.pool.workers[0].running_count == 0)


async def rest_status(address: str) -> str:
    """One REST call on a connection of its own."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps(
        {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "ignore_eos": True}
    )
    writer.write(
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()
    )
    answer = await reader.read()
    writer.close()
    status = answer[9:12].decode()
    if status == "429":
        assert b"\r\nretry-after: " in answer
        assert b'"code":"overloaded"' in answer
    return status


async def native_status(stub: "inference_pb2_grpc.InferenceServiceAsyncStub") -> str:
    call = stub.Generate(hello(2), timeout=LIMIT_S)
    try:
        events = [event async for event in call]
    except aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
            return str(error.code())
        delay_s = from_rpc_error(error, "gateway").retry_delay_s or 0
        return "429" if delay_s >= 1 else "429 without a delay"
    return "200" if events[-1].HasField("finished") else "broken"


@pytest.mark.slow
async def test_case_26_two_thousand_wait_and_all_are_answered_in_flat_memory(tmp_path):
    rest_count, native_count, room = 400, 1800, 2000
    fields = {"max_running": 16, "max_waiting": room - 16, "queue_timeout_s": LIMIT_S}
    pace = {"sim_step_ms": 20}  # those that hold the places do so for 80 s
    async with whole_stack(pace, **fields) as stack, AsyncExitStack() as cleanup:
        settings = EdgeSettings(
            address=f"127.0.0.1:{free_port()}",
            gateways=(f"127.0.0.1:{stack.gateway.port}",),
            runtime_folder=tmp_path,
        )
        await cleanup.enter_async_context(running_envoy(settings))
        await until_serving(settings.address)
        # The edge lets 1,024 streams be on one connection.
        own = [("grpc.use_local_subchannel_pool", 1)]
        stubs = [
            inference_pb2_grpc.InferenceServiceStub(
                await cleanup.enter_async_context(aio.insecure_channel(settings.address, own))
            )
            for _ in range(3)
        ]
        admission, resident, most = stack.app.admission, [], 0
        for _ in range(3):
            holding = [stack.inference.Generate(hello(4000), timeout=LIMIT_S) for _ in range(16)]
            await asyncio.gather(*(call.read() for call in holding))
            calls = [
                asyncio.ensure_future(
                    rest_status(settings.address)
                    if number < rest_count
                    else native_status(stubs[number % 3])
                )
                for number in range(rest_count + native_count)
            ]
            await stack.until(lambda: admission.seat_count == room)
            most = max(most, admission.waiting_count)
            for call in holding:
                call.cancel()
            async with asyncio.timeout(2 * LIMIT_S):
                counts = Counter(await asyncio.gather(*calls))
            assert set(counts) == {"200", "429"}
            assert sum(counts.values()) == rest_count + native_count
            await stack.until(lambda: admission.seat_count == 0)
            resident.append(psutil.Process().memory_info().rss)
        assert most >= room - 16 - 20
        assert resident[2] - resident[1] < 20 * MIB
        assert (admission.held_bytes, admission.held_tokens) == (0, 0)
