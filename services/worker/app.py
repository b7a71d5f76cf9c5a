"""The worker process: one engine, its feature store, and the service in front of them."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext

from grpc import aio
from hotline.v1 import worker_pb2, worker_pb2_grpc

from services.runtime.lifecycle import Service
from services.runtime.logs import get_logger
from services.worker.engine import Engine
from services.worker.features import FeatureStore
from services.worker.generations import Generations
from services.worker.limits import Limits
from services.worker.metrics import WorkerMetrics
from services.worker.model import ModelFacts, read_model
from services.worker.resident import Patience, ResidentEngine
from services.worker.servicer import WorkerServicer
from services.worker.settings import WorkerSettings
from services.worker.sim_build import create_simulator
from services.worker.status import Status
from services.worker.vllm_engine import VllmEngine
from services.worker.warmup import warm_up

_log = get_logger()


def create_engine(settings: WorkerSettings, facts: ModelFacts) -> Engine:
    """The engine that the settings name, not yet started."""
    if settings.engine == "vllm":
        return VllmEngine(settings, facts)
    return create_simulator(settings, facts, time.monotonic)


class WorkerApp(Service):
    """See runtime.lifecycle.Service."""

    def __init__(self, settings: WorkerSettings, engine: Engine | None = None) -> None:
        """`engine`: in place of the one that the settings name. Raises ValueError for a folder that holds no model."""
        super().__init__()
        self._settings = settings
        try:
            facts = read_model(settings.model_path, settings.mm_processor_kwargs)
        except ValueError as error:
            raise ValueError(f"HOTLINE_WORKER_MODEL_PATH: {error}") from error
        self._engine = engine or create_engine(settings, facts)
        self._limits = Limits(
            model=facts,
            context_tokens=min(settings.max_model_len, facts.context_tokens),
            max_images=settings.max_images if facts.images else 0,
        )
        self._store = FeatureStore(
            settings.feature_store_bytes, settings.feature_ttl_s, time.monotonic
        )
        self._generations = Generations(
            self._engine,
            self._store,
            self._limits,
            capacity=settings.max_num_seqs + settings.max_waiting,
            observer=WorkerMetrics(self.metrics.registry, self._status),
        )
        self._resident = ResidentEngine(
            self._engine,
            self._generations,
            Patience(
                settings.start_timeout_s,
                settings.engine_stall_timeout_s,
                settings.engine_max_restarts,
            ),
            warm_up=lambda: warm_up(self._engine, self._limits),
            warming=self._warming,
            clock=time.monotonic,
        )
        self._keeping: asyncio.Task[None] | None = None

    def register(self, server: aio.Server) -> Sequence[str]:
        """Add WorkerService."""
        self._servicer = WorkerServicer(
            self._generations, self._store, self._limits, self.require_serving, self._status
        )
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(self._servicer, server)
        return (worker_pb2.DESCRIPTOR.services_by_name["WorkerService"].full_name,)

    async def warm(self) -> None:
        """Load the engine and pay for what first requests would. Raises to end the process."""
        await self._resident.start()
        self._keeping = asyncio.create_task(self._resident.keep())
        self.own(self._keeping)

    def _warming(self) -> AbstractAsyncContextManager[None]:
        return self.process.warming() if self.process else nullcontext()

    async def drain(self) -> None:
        """Let idle step streams end; an engine that ends now is not brought back."""
        await self._let_go()
        self._servicer.drain()

    async def close(self) -> None:
        """End the engine and its processes."""
        await self._let_go()
        await self._engine.close()

    async def _let_go(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])

    def _status(self) -> Status:
        return Status(
            name=self._settings.name or "worker",
            model=self._settings.model_name,
            engine=self._engine.name,
            state=self.state.value,
            limits=self._limits,
            max_running=self._settings.max_num_seqs,
            load=self._engine.load(),
            feature_bytes=self._store.held_bytes,
            serving_s=self._resident.serving_s,
            engine_restart_count=self._resident.restart_count,
        )
