"""The processes of the relay benchmark: started here, measured from outside, ended with their parent."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.runtime.channel import open_channel
from services.runtime.settings import environment

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "deploy" / "models" / "autoglm-phone-tiny"
START_TIMEOUT_S = 60.0
WAITING_ROOM = 64


@dataclass(frozen=True)
class Sample:
    """What one process had used at one moment."""

    time_s: float
    cpu_s: float
    resident_bytes: int


class Measured:
    """One process."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)

    def sample(self) -> Sample:
        """CPU seconds (user and system) and resident memory so far."""
        times = self._process.cpu_times()
        resident_bytes = self._process.memory_info().rss
        return Sample(time.monotonic(), times.user + times.system, resident_bytes)


@asynccontextmanager
async def started(
    command: list[str], variables: Mapping[str, str], log: Path
) -> AsyncIterator[Measured]:
    """A Python process of this project; its log is for whoever looks into a failure."""
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *command),
            env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
            cwd=ROOT,
            stdout=output,
            stderr=output,
        )
    try:
        yield Measured(process.pid)
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 10)
        except TimeoutError:
            process.kill()
            await process.wait()


async def serving(address: str) -> None:
    """Return when the process there says SERVING. Raises TimeoutError."""
    async with asyncio.timeout(START_TIMEOUT_S), open_channel(address) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(), wait_for_ready=True
        )
        async for update in watch:
            if update.status == health_pb2.HealthCheckResponse.SERVING:
                watch.cancel()
                return


@dataclass(frozen=True)
class Stack:
    """A running gateway with a tokenizer and a simulated worker behind it."""

    address: str
    """The gateway's."""
    processes: Mapping[str, Measured]
    """By `gateway`, `tokenizer`, `worker`."""


@asynccontextmanager
async def stack(
    folder: Path,
    streams: int,
    rate: float,
    context_tokens: int,
    together: bool,
    gateway: Mapping[str, object] | None = None,
) -> AsyncIterator[Stack]:
    """One of each, on unix sockets in `folder`.

    Args:
        rate: tokens a second of each generation.
        context_tokens: prompt and output of one generation.
        together: the simulated device advances all generations in one step; else each goes at its own pace.
        gateway: further settings of it.
    """
    sockets = {name: f"unix:{folder}/{name}" for name in ("gateway", "tokenizer", "worker")}
    common = {"exit_with_parent": True, "drain_notice_s": 0, "drain_grace_s": 1}
    model = {"model_path": str(MODEL), "model_name": "autoglm-phone-tiny"}
    settings: dict[str, dict[str, object]] = {
        "worker": {
            **model,
            "engine": "sim",
            "max_num_seqs": streams,
            "max_waiting": WAITING_ROOM,
            "max_model_len": context_tokens,
            "sim_profile": "instant",
            "sim_step_ms": 1000 / rate,
            "sim_kv_tokens": streams * context_tokens,
            "sim_synchronous": together,
        },
        "tokenizer": {**model, "workers": {"worker": sockets["worker"]}},
        "gateway": {
            "tokenizers": {"tokenizer": sockets["tokenizer"]},
            "workers": {"worker": sockets["worker"]},
            "max_running": streams,
            "allow_anonymous": True,
            **(gateway or {}),
        },
    }
    measured = {}
    async with AsyncExitStack() as processes:
        for name, fields in settings.items():
            variables = environment(
                f"HOTLINE_{name}_", {"name": name, "address": sockets[name], **common, **fields}
            )
            process = started(["-m", f"services.{name}"], variables, folder / f"{name}.log")
            measured[name] = await processes.enter_async_context(process)
        await serving(sockets["gateway"])
        yield Stack(sockets["gateway"], measured)
