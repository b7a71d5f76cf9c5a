"""Real vLLM's engine process is killed or stopped under a worker, which brings it back and keeps its address."""

import asyncio
import signal
import time
from pathlib import Path

import psutil
import pytest
from engine_worker import MODELS, EngineWorker, engine_worker, gone, nothing_left, shared_memory
from grpc import StatusCode, aio
from hotline.v1 import sampling_pb2, worker_pb2

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
PROMPT = [3050, 3052, 10, 500, 501, 502, 3053, 10]
ONE_DEVICE = {
    "HOTLINE_WORKER_MODEL_PATH": str(MODELS / "autoglm-phone-tiny"),
    "HOTLINE_WORKER_MAX_NUM_SEQS": "4",
    "HOTLINE_WORKER_MAX_IMAGES": "1",
    "HOTLINE_WORKER_DTYPE": "float32",
}
MIB = 1024 * 1024


async def greedy(worker: EngineWorker) -> list[int]:
    """Twelve ids."""
    sampling = sampling_pb2.SamplingParameters(max_tokens=12, temperature=0.0, ignore_eos=True)
    request = worker_pb2.WorkerGenerateRequest(
        generation_id="greedy", prompt_token_ids=PROMPT, sampling=sampling
    )
    ids: list[int] = []
    async for event in worker.stub.Generate(request, timeout=60):
        ids.extend(event.tokens.token_ids)
    return ids


def engine_process(worker: EngineWorker) -> psutil.Process:
    return next(
        child
        for child in worker.children()
        if "resource_tracker" not in " ".join(child.cmdline()) and child.status() != "zombie"
    )


async def until(worker: EngineWorker, state: str, restarts: int, timeout_s: float = 150) -> None:
    """Wait until GetStatus tells this state, after so many restarts."""
    async with asyncio.timeout(timeout_s):
        while True:
            status = await worker.stub.GetStatus(worker_pb2.GetStatusRequest(), timeout=5)
            if (status.state, status.engine_restart_count) == (state, restarts):
                return
            await asyncio.sleep(0.05)


async def endless(
    worker: EngineWorker, name: str, began: asyncio.Event
) -> tuple[StatusCode, bytes]:
    """A generation that only a fault ends; returns how it did."""
    sampling = sampling_pb2.SamplingParameters(max_tokens=8000, ignore_eos=True)
    request = worker_pb2.WorkerGenerateRequest(
        generation_id=name, prompt_token_ids=PROMPT, sampling=sampling
    )
    try:
        async for event in worker.stub.Generate(request, timeout=120):
            if event.tokens.position > 2:
                began.set()
    except aio.AioRpcError as error:
        details = dict(error.trailing_metadata() or ())["grpc-status-details-bin"]
        return error.code(), bytes(details)
    raise AssertionError("it ended well")


async def break_under_load(
    worker: EngineWorker, number: signal.Signals, within_s: float
) -> psutil.Process:
    """Signal the engine while 4 generations run; all end typed in time. Returns the engine's process."""
    began = [asyncio.Event() for _ in range(4)]
    calls = [
        asyncio.ensure_future(endless(worker, f"g{index}", event))
        for index, event in enumerate(began)
    ]
    await asyncio.wait_for(asyncio.gather(*(event.wait() for event in began)), 30)
    engine = engine_process(worker)
    engine.send_signal(number)
    begin_s = time.monotonic()
    ends = await asyncio.wait_for(asyncio.gather(*calls), within_s)
    print(f"all ended {time.monotonic() - begin_s:.2f} s after {number.name}")  # noqa: T201
    assert all(code is StatusCode.UNAVAILABLE for code, _ in ends)
    assert all(b"ENGINE_DEAD" in details for _, details in ends)
    return engine


async def test_a_killed_engine_comes_back_again_and_again_in_the_same_process(tmp_path: Path):
    before = shared_memory()
    async with engine_worker(tmp_path, ONE_DEVICE) as worker:
        await worker.serving()
        right = await greedy(worker)
        memory = [psutil.Process(worker.process.pid).memory_info().rss]
        shared = shared_memory()
        for count in (1, 2):
            engine = await break_under_load(worker, signal.SIGKILL, within_s=10)
            if (
                count == 2
            ):  # and once more, while it loads: that start fails, and the next one does not
                await asyncio.sleep(4)
                engine_process(worker).kill()
            await until(worker, "SERVING", count)
            assert await greedy(worker) == right
            await gone([engine], 1)
            assert len(shared_memory()) <= len(shared), shared_memory() - shared
            memory.append(psutil.Process(worker.process.pid).memory_info().rss)
        print("RSS of the worker after each restart, MiB:", [rss // MIB for rss in memory])  # noqa: T201
        assert memory[-1] - memory[0] < 96 * MIB, [rss // MIB for rss in memory]
        children = worker.children()
        assert len([child for child in children if "resource_tracker" not in child.cmdline()]) <= 2
        assert await worker.stopped(signal.SIGTERM, 30) == 0
        await gone(children, 10)
    await nothing_left(before, worker.temporary)


async def test_an_engine_that_hangs_is_replaced_and_a_stop_meanwhile_is_quick(tmp_path: Path):
    before = shared_memory()
    variables = {**ONE_DEVICE, "HOTLINE_WORKER_ENGINE_STALL_TIMEOUT_S": "4"}
    async with engine_worker(tmp_path, variables) as worker:
        await worker.serving()
        right = await greedy(worker)
        engine = await break_under_load(worker, signal.SIGSTOP, within_s=20)
        await until(worker, "SERVING", 1)
        await gone([engine], 1)
        assert await greedy(worker) == right
        engine_process(worker).kill()  # idle this time
        await until(worker, "WARMING", 1, timeout_s=2)
        await asyncio.sleep(3)
        children = worker.children()
        begin_s = time.monotonic()
        assert await worker.stopped(signal.SIGTERM, 30) == 0
        assert time.monotonic() - begin_s < 20
        await gone(children, 10)
    await nothing_left(before, worker.temporary)
