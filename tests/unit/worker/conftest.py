"""Workers for tests: in this process with the simulator, and one subprocess with vLLM."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from worker_calls import MODEL_PATH, Client, connected
from worker_running import Running, StartWorker, sim_worker

START_TIMEOUT_S = 100


@pytest.fixture
async def start_worker() -> AsyncGenerator[StartWorker, None]:
    """Start simulated workers with these settings; they stop with the test."""
    async with AsyncExitStack() as stack:

        async def start(**settings: Any) -> Running:
            return await stack.enter_async_context(sim_worker(**settings))

        yield start


@pytest.fixture(scope="session")
async def shared_worker() -> AsyncGenerator[Running, None]:
    """One simulated worker for tests that leave nothing behind."""
    async with sim_worker() as running:
        yield running


@pytest.fixture
def worker(shared_worker: Running) -> Client:
    """Its client."""
    return shared_worker.client


@pytest.fixture(scope="module")
async def vllm_worker(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncGenerator[Client, None]:
    """One worker process with real vLLM in float32; it ends with the module, to give its memory back."""
    folder = tmp_path_factory.mktemp("worker")
    log = folder / "log"
    environment = {
        **os.environ,
        "HOTLINE_WORKER_MODEL_PATH": str(MODEL_PATH),
        "HOTLINE_WORKER_ADDRESS": f"unix:{folder}/socket",
        "HOTLINE_WORKER_DTYPE": "float32",
        "HOTLINE_WORKER_MAX_NUM_SEQS": "8",
        "HOTLINE_WORKER_DRAIN_NOTICE_S": "0",
        "HOTLINE_WORKER_EXIT_WITH_PARENT": "true",
    }
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "services.worker"),
            env=environment,
            cwd=Path(__file__).parents[3],
            stdout=output,
            stderr=output,
        )
    try:
        async with connected(f"unix:{folder}/socket") as client:
            await _serving(client, process, log)
            yield client
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), 60)


async def _serving(client: Client, process: asyncio.subprocess.Process, log: Path) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    stub = health_pb2_grpc.HealthStub(client.channel)
    ended = asyncio.ensure_future(process.wait())

    async def watch() -> None:
        call = stub.Watch(health_pb2.HealthCheckRequest(), wait_for_ready=True)
        async for update in call:
            if update.status == health_pb2.HealthCheckResponse.SERVING:
                return

    serving = asyncio.ensure_future(watch())
    await asyncio.wait(
        (serving, ended), timeout=START_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED
    )
    if not serving.done() or serving.exception() is not None:
        serving.cancel()
        pytest.fail(f"the worker did not start:\n{log.read_text('utf-8', 'replace')[-4000:]}")
    ended.cancel()
