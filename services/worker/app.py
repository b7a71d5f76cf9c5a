"""The worker process: one engine, its feature store, and the service in front of them."""

import asyncio
import time
from collections.abc import Sequence

from grpc import aio
from hotline.v1 import worker_pb2, worker_pb2_grpc

from services.runtime.errors import EngineDeadError
from services.runtime.lifecycle import Service
from services.runtime.logs import get_logger
from services.worker.engine import Engine
from services.worker.features import FeatureStore
from services.worker.generations import Generations
from services.worker.limits import Limits
from services.worker.model import ModelFacts, read_model
from services.worker.servicer import WorkerServicer
from services.worker.settings import WorkerSettings
from services.worker.sim import SimCosts, SimEngine
from services.worker.status import Status
from services.worker.vllm_engine import VllmEngine
from services.worker.warmup import warm_up

_log = get_logger()


def create_engine(settings: WorkerSettings, facts: ModelFacts) -> Engine:
    """The engine that the settings name, not yet started."""
    if settings.engine == "vllm":
        return VllmEngine(settings, facts)
    costs = SimCosts(
        step_s=settings.sim_step_ms / 1000,
        prefill_tokens_per_s=settings.sim_prefill_tokens_per_s,
        output_tokens=settings.sim_output_tokens,
    )
    return SimEngine(facts, costs, settings.max_num_seqs, time.monotonic)


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
        )
        self._watch: asyncio.Task[None] | None = None
        self._serving_since_s: float | None = None

    def register(self, server: aio.Server) -> Sequence[str]:
        """Add WorkerService."""
        servicer = WorkerServicer(
            self._generations, self._store, self._limits, self.require_serving, self._status
        )
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(servicer, server)
        return (worker_pb2.DESCRIPTOR.services_by_name["WorkerService"].full_name,)

    async def warm(self) -> None:
        """Load the engine and pay for what first requests would. Raises to end the process."""
        begin_s = time.monotonic()
        async with asyncio.timeout(self._settings.start_timeout_s):
            await self._engine.start()
            loaded_s = time.monotonic()
            await warm_up(self._engine, self._limits)
        self._serving_since_s = time.monotonic()
        self._watch = asyncio.create_task(self._watch_engine())
        self.own(self._watch)
        _log.info(
            "warm",
            engine=self._engine.name,
            model=self._settings.model_name,
            load_s=round(loaded_s - begin_s, 1),
            warm_up_s=round(self._serving_since_s - loaded_s, 1),
        )

    async def _watch_engine(self) -> None:
        """Where the engine has ended, end the process, for its supervisor to start a new one."""
        await self._engine.died()
        if self.process is not None:
            await self.process.set_ready(False)  # before the drain, which this only asks for
        raise EngineDeadError("The engine has ended.")

    async def close(self) -> None:
        """End the engine and its processes."""
        if self._watch is not None:
            self._watch.cancel()
        await self._engine.close()

    def _status(self) -> Status:
        since_s = self._serving_since_s
        return Status(
            name=self._settings.name or "worker",
            model=self._settings.model_name,
            engine=self._engine.name,
            state=self.state.value,
            limits=self._limits,
            max_running=self._settings.max_num_seqs,
            load=self._engine.load(),
            feature_bytes=self._store.held_bytes,
            serving_s=0.0 if since_s is None else time.monotonic() - since_s,
        )
