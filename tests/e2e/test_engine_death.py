"""kill -9 of real vLLM's engine process, and of its worker, behind a real edge with 16 streams (case 25)."""

import asyncio
import json
import time
from pathlib import Path

import httpx
import psutil
import pytest
from grpc import aio
from hotline.v1 import error_pb2, inference_pb2, inference_pb2_grpc

from services.runtime.channel import open_channel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
STREAMS = 16
RECOVERY_LIMIT_S = 120
TYPED = {error_pb2.ERROR_REASON_ENGINE_DEAD, error_pb2.ERROR_REASON_UNAVAILABLE}


def worker_process(stack) -> psutil.Process:
    (found,) = [
        process
        for process in psutil.Process(stack.process.pid).children(recursive=True)
        if any(part.endswith("worker-0.environment.json") for part in process.cmdline())
    ]
    return found


def engine_process(worker: psutil.Process) -> psutil.Process:
    (found,) = [
        child
        for child in worker.children(recursive=True)
        if child.status() != psutil.STATUS_ZOMBIE
        and "resource_tracker" not in " ".join(child.cmdline())
    ]
    return found


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


async def over_grpc(channel: aio.Channel, begun: asyncio.Event) -> str:
    """How it ended, in a word. Seeded: what is not goes on when the engine is back."""
    request = inference_pb2.GenerateRequest()
    request.messages.add(role="ROLE_USER", text="Hi")
    request.sampling.ignore_eos, request.sampling.seed = True, 1
    try:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        async for event in stub.Generate(request, timeout=100):
            if event.HasField("text"):
                begun.set()
            if event.HasField("failed"):
                assert event.failed.reason in TYPED
                assert event.failed.retryable
                return "typed"
    except aio.AioRpcError as error:
        told = dict(error.trailing_metadata() or ())
        return "typed" if "grpc-status-details-bin" in told else "a bare status"
    return "a clean end"


async def over_rest(client: httpx.AsyncClient, begun: asyncio.Event) -> str:
    body = {
        "messages": [{"role": "user", "content": "Hi"}],
        "ignore_eos": True,
        "seed": 1,
        "stream": True,
    }
    async with client.stream("POST", "/chat/completions", json=body) as response:
        if response.status_code != 200:
            assert json.loads(await response.aread())["error"]["code"]
            return "typed"
        async for line in response.aiter_lines():
            if not line:
                continue
            begun.set()
            if line == "data: [DONE]":
                return "a clean end"
            if "error" in json.loads(line.removeprefix("data: ")):
                return "typed"
    return "an end that says nothing"


async def break_under_load(stack, victim: psutil.Process) -> list[str]:
    """Kill it while 16 streams run or wait, and tell how each ended."""
    async with (
        open_channel(stack.address) as channel,
        httpx.AsyncClient(base_url=stack.base_url, timeout=100, trust_env=False) as client,
    ):
        begun = [asyncio.Event() for _ in range(STREAMS)]
        streams = [
            asyncio.ensure_future(
                over_grpc(channel, event) if number % 2 else over_rest(client, event)
            )
            for number, event in enumerate(begun)
        ]
        async with asyncio.timeout(30):  # four run in the engine, the others wait
            while sum(event.is_set() for event in begun) < 4:
                await asyncio.sleep(0.01)
        victim.kill()
        return await asyncio.wait_for(asyncio.gather(*streams), 60)


def answered(stack) -> bool:
    body = {"messages": [{"role": "user", "content": "你是谁？"}], "temperature": 0}
    try:
        reply = httpx.post(f"{stack.base_url}/chat/completions", json=body, timeout=60)
    except httpx.HTTPError:
        return False
    return reply.status_code == 200 and "AutoGLM-Phone-Tiny" in reply.text


async def recovered(stack) -> None:
    """The next requests are answered in time."""
    begin_s = time.monotonic()
    async with asyncio.timeout(RECOVERY_LIMIT_S):
        while not await asyncio.to_thread(answered, stack):
            await asyncio.sleep(0.5)
    print(f"answered again {time.monotonic() - begin_s:.1f} s after the streams ended")  # noqa: T201


async def test_case_25_a_killed_engine_ends_every_stream_typed_and_comes_back_behind_the_edge(
    stack,
):
    worker, before = worker_process(stack), shared_memory()
    engine = engine_process(worker)
    assert set(await break_under_load(stack, engine)) == {"typed"}
    await recovered(stack)
    assert worker_process(stack) == worker, "the worker kept its place"
    assert not engine.is_running()
    assert len(shared_memory()) <= len(before), shared_memory() - before
    assert stack.worker_status().engine_restart_count == 1


async def test_case_25_a_killed_worker_ends_every_stream_typed_and_leaves_no_engine(stack):
    worker, before = worker_process(stack), shared_memory()
    below = worker.children(recursive=True)
    assert set(await break_under_load(stack, worker)) == {"typed"}
    await recovered(stack)
    assert worker_process(stack).pid != worker.pid
    _, alive = psutil.wait_procs(below, timeout=10)
    assert not alive, alive
    assert len(shared_memory()) <= len(before), shared_memory() - before


async def greedy(channel: aio.Channel, number: int, begun: asyncio.Event) -> tuple[str, int]:
    """Text and tokens of a generation whose state follows from its ids."""
    request = inference_pb2.GenerateRequest()
    request.messages.add(role="ROLE_USER", text=f"What is {number} + {number}?")
    request.sampling.ignore_eos, request.sampling.temperature = True, 0
    request.sampling.max_tokens = 400
    text = ""
    stub = inference_pb2_grpc.InferenceServiceStub(channel)
    async for event in stub.Generate(request, timeout=100):
        text += event.text.text
        if len(text) > 20:
            begun.set()
        if event.HasField("finished"):
            return text, event.finished.usage.completion_tokens
    raise AssertionError("no terminal event")


async def test_case_25_streams_of_a_killed_engine_go_on_when_it_is_back_with_the_same_tokens(stack):
    async with open_channel(stack.address) as channel:

        async def all_of(victim: psutil.Process | None) -> list[tuple[str, int]]:
            begun = [asyncio.Event() for _ in range(3)]
            streams = [
                asyncio.ensure_future(greedy(channel, number, event))
                for number, event in enumerate(begun)
            ]
            await asyncio.wait_for(asyncio.gather(*(event.wait() for event in begun)), 30)
            if victim is not None:
                victim.kill()
            return await asyncio.wait_for(asyncio.gather(*streams), 100)

        undisturbed = await all_of(None)
        moved = await all_of(engine_process(worker_process(stack)))
    assert moved == undisturbed
    assert all(tokens == 400 for _, tokens in moved)
