"""Streams at the reader's pace, and signs of life where there is nothing to read."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import grpc
import httpx
import pytest
from edge_process import free_port, running_envoy, until_serving
from grpc import aio
from hotline.v1 import conversation_pb2, generation_pb2, inference_pb2, inference_pb2_grpc
from rest_stack import rest_stack
from sim_stack import (
    LIMIT_S,
    SimStack,
    hello,
    sim_stack,
    started_tokenizer,
    started_worker,
    text_of,
)

from services.cli.edge import EdgeSettings

MAX_UNREAD_BYTES = 16 * 1024


@pytest.fixture(scope="module")
async def behind():
    worker = await started_worker(sim_step_ms=1, max_num_seqs=16)
    tokenizer = await started_tokenizer(worker.port)
    yield tokenizer, worker
    await tokenizer.stop()
    await worker.stop()


@pytest.fixture
async def stack(behind):
    async with sim_stack(*behind, max_unread_bytes=MAX_UNREAD_BYTES) as running:
        yield running


async def read(call, count: int = 0) -> list[generation_pb2.GenerationEvent]:
    events: list[generation_pb2.GenerationEvent] = []
    async with asyncio.timeout(LIMIT_S):
        while (event := await call.read()) is not aio.EOF:
            events.append(event)
            if len(events) == count:
                break
    return events


def paced(request=None, **act):
    if request is not None:
        act["generate"] = request
    return inference_pb2.GeneratePacedRequest(**act)


def kinds(events) -> list[str]:
    return [event.WhichOneof("event") for event in events]


async def silence(call) -> None:
    """Nothing comes for a while."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await call.read()


async def test_each_credit_is_an_event_and_what_waits_is_merged(stack):
    call = stack.inference.GeneratePaced(timeout=LIMIT_S)
    await call.write(paced(hello(1000, generation_id="paced")))
    events = await read(call, 1)
    assert kinds(events) == ["accepted"]
    await asyncio.sleep(0.3)
    await call.write(paced(credits=2))
    events += await read(call, 2)
    assert events[2].sequence - events[1].sequence > 10
    await asyncio.sleep(0.2)
    await call.write(paced(credits=65_536))
    events += await read(call)
    whole = await read(
        stack.inference.Generate(hello(1000, generation_id="paced"), timeout=LIMIT_S)
    )
    assert kinds(events[-1:]) == ["finished"]
    assert text_of(events) == text_of(whole)


async def test_without_credit_nothing_comes_but_what_needs_none(stack):
    call = stack.inference.GeneratePaced(timeout=LIMIT_S)
    await call.write(paced(hello(20)))
    assert kinds(await read(call, 1)) == ["accepted"]
    reading = asyncio.ensure_future(call.read())
    await asyncio.sleep(0.3)
    assert not reading.done()
    await call.write(paced(credits=1))
    assert (await reading).WhichOneof("event") == "started"
    call.cancel()


async def test_a_paced_stream_is_cancelled_by_a_message(stack):
    call = stack.inference.GeneratePaced(timeout=LIMIT_S)
    await call.write(paced(hello(8000)))
    await read(call, 1)
    await call.write(paced(cancel=True))
    end = (await read(call))[-1]
    assert end.finished.reason == generation_pb2.FINISH_REASON_CANCELLED


async def test_a_client_that_says_no_more_gets_the_rest_at_once(stack):
    call = stack.inference.GeneratePaced(timeout=LIMIT_S)
    await call.write(paced(hello(50)))
    await call.done_writing()
    assert (await read(call))[-1].finished.usage.completion_tokens == 50


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(paced(credits=1), None, id="credits first"),
        pytest.param(paced(), None, id="nothing"),
        pytest.param(paced(hello(4000)), paced(credits=0), id="no credit"),
        pytest.param(paced(hello(4000)), paced(credits=65_537), id="too many credits"),
        pytest.param(paced(hello(4000)), paced(cancel=False), id="a cancel that is none"),
        pytest.param(paced(hello(4000)), paced(hello(4000)), id="generate twice"),
    ],
)
async def test_what_a_paced_stream_may_not_say_is_refused(stack, first, second):
    call = stack.inference.GeneratePaced(timeout=LIMIT_S)
    await call.write(first)
    if second is not None:
        await call.write(second)
    with pytest.raises(aio.AioRpcError) as refused:
        await read(call)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    await stack.until(lambda: stack.app.admission.seat_count == 0)


async def test_what_waits_without_credit_is_bounded(stack):
    call = stack.inference.GeneratePaced(timeout=LIMIT_S)
    await call.write(paced(hello(8000)))
    await read(call, 1)
    await stack.until(lambda: stack.app.admission.seat_count == 0)
    await call.write(paced(credits=65_536))
    end = (await read(call))[-1]
    assert str(MAX_UNREAD_BYTES) in end.failed.message


@asynccontextmanager
async def narrow(stack: SimStack) -> AsyncGenerator[inference_pb2_grpc.InferenceServiceStub, None]:
    """A client that takes 4 KiB from the network before it reads any of it."""
    options = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 4096)]
    address = f"127.0.0.1:{stack.gateway.port}"
    async with aio.insecure_channel(address, options=options) as channel:
        yield inference_pb2_grpc.InferenceServiceStub(channel)


@pytest.mark.parametrize("name", ["", "hanging"])
async def test_a_reader_that_hangs_is_cut_off_and_nobody_else_is_slower(stack, name):
    async with narrow(stack) as stub:
        hanging = stub.Generate(hello(8000, generation_id=name), timeout=LIMIT_S)
        await read(hanging, 1)
        begun_s = asyncio.get_running_loop().time()
        quick = await read(stack.inference.Generate(hello(500), timeout=LIMIT_S))
        assert quick[-1].finished.usage.completion_tokens == 500
        await stack.until(lambda: stack.app.admission.seat_count == 0)
        assert asyncio.get_running_loop().time() - begun_s < LIMIT_S / 2
        end = (await read(hanging))[-1]
        assert str(MAX_UNREAD_BYTES) in end.failed.message


async def test_beside_a_quick_reader_a_hanging_one_is_no_reason_to_end(stack):
    async with narrow(stack) as stub:
        hanging = stub.Generate(hello(7000, generation_id="both"), timeout=LIMIT_S)
        await read(hanging, 1)
        quick = await read(
            stack.inference.Generate(hello(7000, generation_id="both"), timeout=LIMIT_S)
        )
        assert quick[-1].finished.usage.completion_tokens == 7000
        assert text_of(await read(hanging)) == text_of(quick)


async def trickle(address: str, body: bytes) -> int:
    """A client that has room for next to nothing and takes one byte a second; how many it took until it was cancelled."""
    host, _, port = address.rpartition(":")
    with socket.socket(socket.AF_INET) as connection:
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        loop, count = asyncio.get_running_loop(), 0
        await loop.sock_connect(connection, (host, int(port)))
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
        await loop.sock_sendall(
            connection, head.encode() + b"content-type: application/json\r\n\r\n" + body
        )
        try:
            while await loop.sock_recv(connection, 1):
                count += 1
                await asyncio.sleep(1)
        except asyncio.CancelledError:
            pass
        return count


async def test_readers_of_one_byte_a_second_slow_nobody_down(behind, tmp_path):
    async with rest_before(behind, tmp_path, max_unread_bytes=MAX_UNREAD_BYTES) as (stack, address):
        body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}
        long = json.dumps(body | {"max_tokens": 8000, "ignore_eos": True}).encode()
        readers = [asyncio.create_task(trickle(address, long)) for _ in range(4)]
        await stack.until(lambda: stack.app.admission.running_count == 4)
        begun_s = asyncio.get_running_loop().time()
        quick = await read(stack.inference.Generate(hello(500), timeout=LIMIT_S))
        assert quick[-1].finished.usage.completion_tokens == 500
        assert asyncio.get_running_loop().time() - begun_s < 10
        assert stack.app.admission.running_count == 4
        for reader in readers:
            reader.cancel()
        assert all(0 < count < 100 for count in await asyncio.gather(*readers))
        await stack.until(lambda: stack.app.admission.seat_count == 0)


@asynccontextmanager
async def rest_before(behind, folder, **fields):
    async with sim_stack(*behind, **fields) as stack:
        settings = EdgeSettings(
            address=f"127.0.0.1:{free_port()}",
            gateways=(f"127.0.0.1:{stack.gateway.port}",),
            runtime_folder=folder,
        )
        async with running_envoy(settings):
            await until_serving(settings.address)
            yield stack, settings.address


@pytest.fixture(scope="module")
async def slow(tmp_path_factory):
    """A worker that reads so slowly that there is silence before the first token."""
    worker = {"sim_prefill_tokens_per_s": 20, "sim_step_ms": 5}
    folder = tmp_path_factory.mktemp("edge")
    async with rest_stack(folder, worker, max_running=1, sse_heartbeat_s=0.2) as running:
        yield running


def long() -> inference_pb2.GenerateRequest:
    message = conversation_pb2.Message(role=conversation_pb2.ROLE_USER, text="Hi " * 25)
    request = inference_pb2.GenerateRequest(messages=[message], heartbeat_interval_ms=1000)
    request.sampling.max_tokens, request.sampling.ignore_eos = 5, True
    return request


async def test_heartbeats_tell_the_place_in_the_queue_and_the_phase(slow):
    first = slow.behind.inference.Generate(long(), timeout=LIMIT_S)
    await read(first, 1)
    second = slow.behind.inference.Generate(long(), timeout=LIMIT_S)
    events, others = await asyncio.gather(read(second), read(first))
    beats = [event for event in (*others, *events) if event.WhichOneof("event") == "heartbeat"]
    states = {event.heartbeat.state for event in beats}
    assert generation_pb2.GENERATION_STATE_QUEUED in states
    assert generation_pb2.GENERATION_STATE_PREFILL in states
    assert kinds(events)[0] == "heartbeat"
    assert events[0].sequence == 0
    numbered = [e.sequence for e in events if e.WhichOneof("event") != "heartbeat"]
    assert numbered == sorted(set(numbered))
    assert kinds(events)[-1] == "finished"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi " * 25}]}),
        ("/v1/completions", {"prompt": "Hi " * 25}),
    ],
)
async def test_an_event_stream_is_kept_alive_by_comments(slow, path, body):
    body = body | {"stream": True, "max_tokens": 5, "ignore_eos": True}
    async with (
        httpx.AsyncClient(base_url=slow.url, timeout=LIMIT_S) as http,
        http.stream("POST", path, json=body) as response,
    ):
        text = (await response.aread()).decode()
    assert text.startswith(": ping\n: ping\n")
    assert ": ping\n\n" not in text
    assert text.endswith("data: [DONE]\n\n")


async def test_no_comment_comes_before_the_generation_was_accepted(slow):
    first = slow.behind.inference.Generate(long(), timeout=LIMIT_S)
    await read(first, 1)
    body = {
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "max_tokens": 100_000,
        "n": 1,
        "stop_token_ids": [151_000_000],
    }
    async with httpx.AsyncClient(base_url=slow.url, timeout=LIMIT_S) as http:
        answer = await http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    first.cancel()
