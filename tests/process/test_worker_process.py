"""`python -m services.worker` as an operator and a supervisor see it."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from grpc import StatusCode, aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hotline.v1 import sampling_pb2, worker_pb2, worker_pb2_grpc

from services.runtime.channel import open_channel

ROOT = Path(__file__).parents[2]
MODEL_PATH = ROOT / "deploy/models/autoglm-phone-tiny"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@dataclass
class Worker:
    """A worker process and a channel to it."""

    process: asyncio.subprocess.Process
    channel: aio.Channel
    log: Path

    def health(self) -> Any:
        stub: Any = health_pb2_grpc.HealthStub(self.channel)  # type: ignore[no-untyped-call]
        return stub.Watch(health_pb2.HealthCheckRequest(), wait_for_ready=True)

    async def serving(self, timeout_s: float) -> list[int]:
        """Wait for SERVING; returns the statuses seen."""
        seen = []
        async with asyncio.timeout(timeout_s):
            async for update in self.health():
                seen.append(update.status)
                if update.status == SERVING:
                    break
        return seen

    def generate(self, max_tokens: int) -> Any:
        stub: worker_pb2_grpc.WorkerServiceAsyncStub = worker_pb2_grpc.WorkerServiceStub(
            self.channel
        )
        sampling = sampling_pb2.SamplingParameters(max_tokens=max_tokens, ignore_eos=True)
        request = worker_pb2.WorkerGenerateRequest(
            generation_id="g", prompt_token_ids=[5, 6, 7], sampling=sampling
        )
        return stub.Generate(request, timeout=60)

    async def ended(self, timeout_s: float) -> int:
        return await asyncio.wait_for(self.process.wait(), timeout_s)

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


@asynccontextmanager
async def started(folder: Path, **settings: str) -> AsyncGenerator[Worker, None]:
    variables = {
        "ENGINE": "sim",
        "MODEL_PATH": str(MODEL_PATH),
        "ADDRESS": f"unix:{folder}/socket",
        "DRAIN_NOTICE_S": "0",
        "EXIT_WITH_PARENT": "true",
        **settings,
    }
    environment = {f"HOTLINE_WORKER_{name}": value for name, value in variables.items()}
    log = folder / "log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "services.worker"),
            env={**os.environ, **environment},
            cwd=ROOT,
            stdout=output,
            stderr=output,
        )
    channel = open_channel(variables["ADDRESS"])
    try:
        yield Worker(process, channel, log)
    finally:
        await channel.close()
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.fixture
async def start(tmp_path: Path) -> AsyncGenerator[Callable[..., Any], None]:
    async with AsyncExitStack() as stack:

        async def begin(**settings: str) -> Worker:
            return await stack.enter_async_context(started(tmp_path, **settings))

        yield begin


async def test_health_comes_to_serving_and_sigterm_ends_it_with_code_0(start: Callable[..., Any]):
    worker: Worker = await start()
    assert (await worker.serving(20))[-1] == SERVING
    worker.process.terminate()
    assert await worker.ended(10) == 0
    assert "SIMULATOR" in worker.log.read_text()


async def test_sigterm_lets_a_running_generation_end(start: Callable[..., Any]):
    worker: Worker = await start(SIM_STEP_MS="10")
    await worker.serving(20)
    call = aiter(worker.generate(60))
    assert (await anext(call)).WhichOneof("event") == "started"
    worker.process.terminate()
    events = [event async for event in call]
    assert events[-1].finished.completion_tokens == 60
    assert await worker.ended(10) == 0


async def test_draining_says_not_serving_before_calls_are_refused(start: Callable[..., Any]):
    worker: Worker = await start(SIM_STEP_MS="10", DRAIN_NOTICE_S="0.5")
    watch = aiter(worker.health())
    async for update in watch:
        if update.status == SERVING:
            break
    worker.process.terminate()
    assert (await anext(watch)).status == NOT_SERVING
    assert [event async for event in worker.generate(3)]
    assert await worker.ended(10) == 0


async def test_a_generation_beyond_the_grace_is_cut_and_the_process_ends(
    start: Callable[..., Any],
):
    worker: Worker = await start(SIM_STEP_MS="50", DRAIN_GRACE_S="0.2")
    await worker.serving(20)
    call = aiter(worker.generate(8000))
    await anext(call)
    worker.process.terminate()
    with pytest.raises(aio.AioRpcError) as caught:
        async for _ in call:
            pass
    assert caught.value.code() in (StatusCode.UNAVAILABLE, StatusCode.CANCELLED)
    assert await worker.ended(10) == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("MAX_NUM_SEQS", "none", id="no number"),
        pytest.param("MODEL_PATH", "nowhere", id="no folder"),
        pytest.param("MODEL_PATH", "services", id="no model"),
        pytest.param("MAX_NUM_SEQ", "4", id="misspelt"),
    ],
)
async def test_a_bad_setting_ends_it_with_the_variables_name(
    start: Callable[..., Any], name: str, value: str
):
    worker: Worker = await start(**{name: value})
    assert await worker.ended(20) == 2
    assert f"HOTLINE_WORKER_{name}" in worker.log.read_text()


async def test_an_address_that_is_taken_ends_it_with_code_1(start: Callable[..., Any]):
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    worker: Worker = await start(ADDRESS=f"127.0.0.1:{port}")
    assert await worker.ended(20) == 1
    server.close()


VLLM = {"ENGINE": "vllm", "MAX_NUM_SEQS": "4", "MAX_IMAGES": "1"}


async def child(worker: Worker, timeout_s: float = 90) -> psutil.Process:
    """The engine's process, as soon as it is there."""
    async with asyncio.timeout(timeout_s):
        while True:
            for process in worker.children():
                if "resource_tracker" not in " ".join(process.cmdline()):
                    return process
            await asyncio.sleep(0.05)


async def gone(processes: list[psutil.Process], timeout_s: float) -> None:
    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, timeout_s)
    assert not alive


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("delay_s", [pytest.param(0.0, id="engine forked"), 2.0, 6.0])
async def test_sigterm_while_vllm_loads_ends_it_soon_without_orphans(
    start: Callable[..., Any], delay_s: float
):
    worker: Worker = await start(**VLLM)
    await child(worker)
    await asyncio.sleep(delay_s)
    processes = worker.children()
    worker.process.send_signal(signal.SIGTERM)
    assert await worker.ended(30) == 0
    await gone(processes, 10)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_sigterm_while_vllm_is_imported_ends_it_in_bounded_time(start: Callable[..., Any]):
    worker: Worker = await start(**VLLM)
    async for _ in worker.health():
        break
    worker.process.terminate()
    assert await worker.ended(60) == 0
    assert not [
        process for process in psutil.process_iter() if process.ppid() == worker.process.pid
    ]


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_kill_9_of_a_worker_leaves_no_orphan(start: Callable[..., Any]):
    worker: Worker = await start(**VLLM)
    await worker.serving(120)
    processes = worker.children()
    assert processes
    worker.process.kill()
    await worker.ended(10)
    await gone(processes, 10)
