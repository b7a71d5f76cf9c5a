"""A gateway that stops: what its drain leaves no time for ends in words, never in a silence that looks like success."""

import asyncio
import json
from collections.abc import AsyncGenerator

import grpc
import pytest
from google.api import httpbody_pb2
from grpc import aio
from hotline.v1 import error_pb2, generation_pb2, openai_pb2_grpc
from sim_stack import LIMIT_S, SimStack, hello, sim_stack, started_tokenizer, started_worker

GRACE_S = 0.6


@pytest.fixture(scope="module")
async def behind():
    worker = await started_worker(sim_step_ms=10)
    tokenizer = await started_tokenizer(worker.port)
    yield tokenizer, worker
    await tokenizer.stop()
    await worker.stop()


@pytest.fixture
async def stack(behind) -> AsyncGenerator[SimStack, None]:
    async with sim_stack(*behind, drain_grace_s=GRACE_S) as running:
        yield running


def chat(stack: SimStack, max_tokens: int, stream: bool):
    body = {
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "stream": stream,
    }
    request = httpbody_pb2.HttpBody(content_type="application/json", data=json.dumps(body).encode())
    stub = openai_pb2_grpc.OpenAIServiceStub(stack.channel)
    return stub.CreateChatCompletion(request, timeout=LIMIT_S)


async def last_event(call) -> generation_pb2.GenerationEvent:
    async with asyncio.timeout(LIMIT_S):
        while (event := await call.read()) is not aio.EOF:
            last = event
    return last


async def test_a_rest_stream_that_is_too_long_for_the_grace_ends_with_an_error_event(stack):
    call = chat(stack, 3000, stream=True)
    await call.read()
    stopping = asyncio.ensure_future(stack.gateway.stop())
    data = b""
    try:
        async with asyncio.timeout(LIMIT_S):
            while (body := await call.read()) is not aio.EOF:
                data += body.data
    except aio.AioRpcError:
        pass
    assert await call.code() is grpc.StatusCode.UNAVAILABLE
    last = data.strip().rpartition(b"\n\n")[2]
    error = json.loads(last.removeprefix(b"data: "))["error"]
    assert "shutting down" in error["message"]
    assert b"[DONE]" not in data
    await stopping


async def test_a_whole_answer_that_is_too_long_for_the_grace_is_503(stack):
    call = chat(stack, 3000, stream=False)
    await stack.until(lambda: stack.app.registry.running_count == 1)
    stopping = asyncio.ensure_future(stack.gateway.stop())
    metadata = dict(await call.initial_metadata())
    assert metadata["x-http-status"] == "503"
    assert "retry-after" in metadata
    await stopping


async def test_a_native_stream_that_is_too_long_for_the_grace_fails_retryably(stack):
    call = stack.inference.Generate(hello(3000), timeout=LIMIT_S)
    await call.read()
    stopping = asyncio.ensure_future(stack.gateway.stop())
    last = await last_event(call)
    assert last.failed.reason == error_pb2.ERROR_REASON_UNAVAILABLE
    assert last.failed.retryable
    assert last.failed.usage.completion_tokens > 0
    await stopping


async def test_a_stream_that_ends_within_the_grace_is_whole(stack):
    call = stack.inference.Generate(hello(20), timeout=LIMIT_S)
    await call.read()
    stopping = asyncio.ensure_future(stack.gateway.stop())
    last = await last_event(call)
    assert last.finished.usage.completion_tokens == 20
    await stopping
