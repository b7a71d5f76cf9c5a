"""Case 23: who goes away takes his generation with him, however he was connected."""

import asyncio
import time

import httpx
import pytest
from hotline.v1 import conversation_pb2, inference_pb2, inference_pb2_grpc

from services.runtime.channel import open_channel

LONG = {
    "model": "autoglm-phone-tiny",
    "messages": [{"role": "user", "content": "Hi"}],
    "ignore_eos": True,
    "temperature": 0,
}


def busy(stack) -> bool:
    end_s = time.monotonic() + 10
    while time.monotonic() < end_s:
        if stack.worker_status().running:
            return True
        time.sleep(0.01)
    return False


def test_a_streaming_client_that_closes_frees_the_slot(stack):
    with (
        httpx.Client(base_url=stack.base_url, timeout=30, trust_env=False) as client,
        client.stream("POST", "/chat/completions", json={**LONG, "stream": True}) as response,
    ):
        lines = response.iter_lines()  # kept: httpx closes the response with its iterator
        assert next(lines).startswith("data: ")
        assert busy(stack)
    assert stack.idle_within(5)


async def test_a_client_without_stream_that_gives_up_frees_the_slot(stack):
    async with httpx.AsyncClient(base_url=stack.base_url, timeout=30, trust_env=False) as client:
        asking = asyncio.ensure_future(client.post("/chat/completions", json=LONG))
        assert await asyncio.to_thread(busy, stack)
        asking.cancel()
        await asyncio.wait((asking,))
    assert await asyncio.to_thread(stack.idle_within, 5)


async def test_a_native_client_that_cancels_frees_the_slot(stack):
    async with open_channel(stack.address) as channel:
        request = inference_pb2.GenerateRequest(
            messages=[conversation_pb2.Message(role=conversation_pb2.ROLE_USER, text="Hi")]
        )
        request.sampling.ignore_eos = True
        call = inference_pb2_grpc.InferenceServiceStub(channel).Generate(request, timeout=60)
        async for event in call:
            if event.HasField("text"):
                break
        assert stack.worker_status().running == 1
        call.cancel()
    assert await asyncio.to_thread(stack.idle_within, 5)


@pytest.mark.parametrize("count", [12])
async def test_many_clients_that_go_leave_nothing_behind(stack, count):
    async with httpx.AsyncClient(base_url=stack.base_url, timeout=30, trust_env=False) as client:
        asking = [
            asyncio.ensure_future(client.post("/chat/completions", json=LONG)) for _ in range(count)
        ]
        assert await asyncio.to_thread(busy, stack)
        for task in asking:
            task.cancel()
        await asyncio.wait(asking)
        assert await asyncio.to_thread(stack.idle_within, 10)
        answer = await client.post("/chat/completions", json={**LONG, "ignore_eos": False})
    assert answer.status_code == 200
