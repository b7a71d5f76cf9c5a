"""The gateway process: servicers in front, the pool behind."""

import asyncio
import time
from collections.abc import Sequence
from random import Random

from grpc import aio
from hotline.v1 import inference_pb2_grpc, model_pb2_grpc, openai_pb2_grpc

from services.gateway.admin_servicer import system_status
from services.gateway.inference_servicer import InferenceServicer, ModelServicer
from services.gateway.metrics import GatewayMetrics
from services.gateway.openai_servicer import OpenAIServicer
from services.gateway.pool import Pool
from services.gateway.registry import Registry
from services.gateway.rest_answers import RestInterceptor
from services.gateway.settings import GatewaySettings
from services.gateway.unimplemented import add_later_services
from services.runtime.admission import Admission
from services.runtime.lifecycle import Service

OPENAI = "hotline.v1.OpenAIService"
LAST_WORDS_S = 1.0
"""So long before the end of the drain's grace, or at half of a shorter one, running generations are told of their end."""


class Gateway(Service):
    """Admits, places and relays generations."""

    interceptors = (RestInterceptor(),)
    # The edge follows OpenAIService: while the gateway lives it gives better answers than "no upstream".
    steady_names = frozenset({OPENAI})

    def __init__(self, settings: GatewaySettings) -> None:
        super().__init__()
        self._settings = settings
        self.admission = Admission(settings.max_running, settings.max_waiting)
        self._last_words: asyncio.TimerHandle | None = None

    def register(self, server: aio.Server) -> Sequence[str]:
        """Add the servicers."""
        settings = self._settings
        measured = GatewayMetrics(self.metrics.registry, time.monotonic)
        random = Random()  # noqa: S311  # no secret: who gets the next generation
        self.pool = Pool(settings, random, measured.text_rebuilt)
        self.registry = Registry(
            self.pool,
            self.admission,
            time.monotonic,
            settings.queue_timeout_s,
            settings.render_timeout_s,
            measured,
        )
        admission = self.admission
        measured.watch_queue(lambda: admission.running_count, lambda: admission.waiting_count)
        for tokenizer in self.pool.tokenizers:
            measured.watch_upstream(tokenizer.upstream)
        for worker in self.pool.workers:
            measured.watch_upstream(worker.upstream)
        inference = InferenceServicer(self.pool, self.registry, settings)
        inference_pb2_grpc.add_InferenceServiceServicer_to_server(inference, server)
        model_pb2_grpc.add_ModelServiceServicer_to_server(ModelServicer(self.pool), server)
        openai = OpenAIServicer(self.pool, self.registry, settings)
        openai_pb2_grpc.add_OpenAIServiceServicer_to_server(openai, server)
        names = ["hotline.v1.InferenceService", "hotline.v1.ModelService", OPENAI]
        status = system_status(
            *(settings.name or "gateway", settings.address),
            lambda: self.state.value,
            self.admission,
            self.pool,
        )
        return names + add_later_services(server, status)

    async def warm(self) -> None:
        """Begin to watch the processes behind; ready once a tokenizer and a worker serve."""
        await self._publish_readiness()
        self.pool.start(self._publish_readiness, self.own)

    async def _publish_readiness(self) -> None:
        if self.process is not None:
            await self.process.set_ready(self.pool.ready)

    async def drain(self) -> None:
        """Let generations go on, but not to the end of the grace: over REST a call that is cut looks like a clean end."""
        if self._last_words is None and hasattr(self, "registry"):
            grace_s = self._settings.drain_grace_s
            after_s = max(grace_s - LAST_WORDS_S, grace_s / 2)
            loop = asyncio.get_running_loop()
            self._last_words = loop.call_later(after_s, self.registry.fail_all)

    async def close(self) -> None:
        """Cancel what still runs, let go of the processes behind."""
        if self._last_words is not None:
            self._last_words.cancel()
        if hasattr(self, "pool"):
            await self.registry.close()
            await self.pool.close()
