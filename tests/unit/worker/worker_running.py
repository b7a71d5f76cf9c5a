"""A whole worker in this process, with the simulator."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from worker_calls import MODEL_PATH, Client, connected

from services.runtime.lifecycle import Process
from services.worker.app import WorkerApp, create_engine
from services.worker.model import read_model
from services.worker.settings import WorkerSettings
from services.worker.sim import SimEngine


@dataclass(frozen=True)
class Running:
    """A worker in this process."""

    client: Client
    process: Process
    engine: SimEngine


StartWorker: TypeAlias = Callable[..., Awaitable[Running]]


@asynccontextmanager
async def sim_worker(**settings: Any) -> AsyncIterator[Running]:
    """A serving worker with the simulator, 1 ms a token."""
    values = {"engine": "sim", "model_path": MODEL_PATH, "sim_profile": "fast", "drain_notice_s": 0}
    chosen = WorkerSettings(**{"drain_grace_s": 1, **values, **settings})
    engine = create_engine(chosen, read_model(MODEL_PATH, {}))
    assert isinstance(engine, SimEngine)
    process = Process(WorkerApp(chosen, engine), chosen)
    await process.start()
    try:
        async with connected(f"127.0.0.1:{process.port}") as client:
            yield Running(client, process, engine)
    finally:
        await process.stop()
