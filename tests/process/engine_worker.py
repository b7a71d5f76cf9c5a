"""A worker process with real vLLM, and what it leaves behind; used by test_worker_devices.py."""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hotline.v1 import sampling_pb2, worker_pb2, worker_pb2_grpc
from transformers_reference import Rendered

from services.runtime.channel import open_channel

MIB = 1024 * 1024
ROOT = Path(__file__).parents[2]
MODELS = ROOT / "deploy/models"
SHARED_MEMORY = Path("/dev/shm")
TWO_DEVICES = {
    "HOTLINE_WORKER_MODEL_PATH": str(MODELS / "autoglm-phone-tiny-4-heads"),
    "HOTLINE_WORKER_TENSOR_PARALLEL_SIZE": "2",
    "HOTLINE_WORKER_MAX_NUM_SEQS": "4",
    "HOTLINE_WORKER_MAX_IMAGES": "1",
    "HOTLINE_WORKER_DTYPE": "float32",
    "VLLM_CPU_OMP_THREADS_BIND": "0|1",
}


@dataclass
class EngineWorker:
    """A worker process, a channel to it, and the folder for temporary files that it was given."""

    process: asyncio.subprocess.Process
    channel: aio.Channel
    log: Path
    temporary: Path
    found: set[str]
    """Shared memory that was there before it."""

    async def serving(self, timeout_s: float = 120) -> None:
        """Wait for SERVING; fails where the process ends before."""
        stub: Any = health_pb2_grpc.HealthStub(self.channel)  # type: ignore[no-untyped-call]

        async def watch() -> None:
            call = stub.Watch(health_pb2.HealthCheckRequest(), wait_for_ready=True)
            async for update in call:
                if update.status == health_pb2.HealthCheckResponse.SERVING:
                    return

        watching = asyncio.ensure_future(watch())
        ended = asyncio.ensure_future(self.process.wait())
        await asyncio.wait((watching, ended), timeout=timeout_s, return_when="FIRST_COMPLETED")
        ended.cancel()
        well = watching.done() and watching.exception() is None
        assert well, self.log.read_text("utf-8", "replace")[-4000:]

    @property
    def stub(self) -> "worker_pb2_grpc.WorkerServiceAsyncStub":
        """Its calls."""
        return worker_pb2_grpc.WorkerServiceStub(self.channel)

    async def put(self, prompts: Iterable[Rendered]) -> None:
        """Upload the images of prompts."""
        images = [prompt for prompt in prompts if prompt.header is not None]

        def messages() -> Iterator[worker_pb2.PutFeaturesRequest]:
            for prompt in images:
                yield worker_pb2.PutFeaturesRequest(header=prompt.header)
                for begin in range(0, len(prompt.data), MIB):
                    yield worker_pb2.PutFeaturesRequest(chunk=prompt.data[begin : begin + MIB])

        await self.stub.PutFeatures(messages(), timeout=30)

    async def greedy(
        self, name: str, prompt: Rendered, image_token: int, max_tokens: int, salt: str = ""
    ) -> list[int]:
        """Greedy ids."""
        request = worker_pb2.WorkerGenerateRequest(
            generation_id=name,
            prompt_token_ids=prompt.ids,
            features=prompt.placements(image_token),
            cache_salt=salt,
            sampling=sampling_pb2.SamplingParameters(max_tokens=max_tokens, temperature=0.0),
        )
        ids: list[int] = []
        async for event in self.stub.Generate(request, timeout=100):
            ids.extend(event.tokens.token_ids)
        return ids

    def children(self) -> list[psutil.Process]:
        """Every process below it."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def devices(self) -> list[psutil.Process]:
        """The processes of the devices."""
        return [child for child in self.children() if "Worker" in child.name()]

    async def stopped(self, number: signal.Signals, timeout_s: float) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        self.process.send_signal(number)
        return await asyncio.wait_for(self.process.wait(), timeout_s)


@asynccontextmanager
async def engine_worker(
    folder: Path, variables: dict[str, str]
) -> AsyncGenerator[EngineWorker, None]:
    """A worker with these variables; killed at the end where it still runs."""
    temporary = Path(tempfile.mkdtemp(prefix="ew-"))  # a short path: sockets are made in it
    found = shared_memory()
    address = f"unix:{folder}/socket"
    environment = {
        **os.environ,
        "HOTLINE_WORKER_ADDRESS": address,
        "HOTLINE_WORKER_DRAIN_NOTICE_S": "0",
        "HOTLINE_WORKER_EXIT_WITH_PARENT": "true",
        "TMPDIR": str(temporary),
        **variables,
    }
    log = folder / "log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "services.worker"),
            env=environment,
            cwd=ROOT,
            stdout=output,
            stderr=output,
        )
    channel = open_channel(address)
    try:
        yield EngineWorker(process, channel, log, temporary, found)
    finally:
        await channel.close()
        if process.returncode is None:
            process.kill()
            await process.wait()


def shared_memory() -> set[str]:
    """Names in /dev/shm that an engine makes."""
    marks = ("psm_", "vllm", "sem.mp-")
    return {path.name for path in SHARED_MEMORY.iterdir() if path.name.startswith(marks)}


async def gone(processes: list[psutil.Process], timeout_s: float) -> None:
    """All of them end in time."""
    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, timeout_s)
    assert not alive, [process.name() for process in alive]


async def nothing_left(before: set[str], temporary: Path, timeout_s: float = 10) -> None:
    """No shared memory more than before, no socket or folder of an engine; the resource tracker may take a moment."""
    async with asyncio.timeout(timeout_s):
        while (shared_memory() - before) or list(temporary.glob("hotline-engine-*")):
            await asyncio.sleep(0.05)
    assert not [path for path in temporary.rglob("*") if path.is_socket()]
    assert not list(temporary.glob("vllm_dist_*"))
    shutil.rmtree(temporary)
