"""The gateway process: servicers in front, the pool behind."""

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from random import Random

from grpc import aio
from hotline.v1 import inference_pb2_grpc, model_pb2_grpc, openai_pb2_grpc, session_pb2_grpc

from services.gateway.admin_listener import AdminListener
from services.gateway.admin_servicer import admin_servicer, system_status
from services.gateway.admission import Admission
from services.gateway.admission_interceptor import AdmissionInterceptor, NativeHeadersInterceptor
from services.gateway.admission_metrics import AdmissionMetrics
from services.gateway.authentication import Authenticator
from services.gateway.authentication_interceptor import AuthenticationInterceptor
from services.gateway.inference_servicer import InferenceServicer, ModelServicer
from services.gateway.key_file import KeyFileError
from services.gateway.key_reload import KeyReload
from services.gateway.key_ring import FileKeyRing
from services.gateway.metrics import GatewayMetrics
from services.gateway.openai_servicer import OpenAIServicer
from services.gateway.peers import Peers
from services.gateway.pool import Pool
from services.gateway.registry import Registry
from services.gateway.rest_answers import RestInterceptor
from services.gateway.retention_metrics import RetentionMetrics
from services.gateway.session_metrics import SessionMetrics
from services.gateway.session_servicer import SessionServicer
from services.gateway.session_turns import SessionTurns
from services.gateway.sessions.sessions import Sessions
from services.gateway.sessions.sqlite_database import DatabaseError
from services.gateway.sessions.store_choice import open_store
from services.gateway.settings import GatewaySettings
from services.runtime.lifecycle import Service
from services.runtime.logs import get_logger
from services.runtime.loopback import is_loopback
from services.runtime.start import StartRefusedError

_log = get_logger()

OPENAI = "hotline.v1.OpenAIService"
LAST_WORDS_S = 1.0
"""So long before the end of the drain's grace, or at half of a shorter one, running generations are told of their end."""


class Gateway(Service):
    """Admits, places and relays generations."""

    for_clients = True
    reloads = True
    # The edge follows OpenAIService: while the gateway lives it gives better answers than "no upstream".
    steady_names = frozenset({OPENAI})

    def __init__(self, settings: GatewaySettings) -> None:
        super().__init__()
        self._settings = settings
        measured = AdmissionMetrics(self.metrics.registry)
        self.admission = Admission(settings.admission(), time.monotonic, measured.refused)
        measured.watch(self.admission)
        self._last_words: asyncio.TimerHandle | None = None
        file = settings.keys_file
        self._keys = None if file is None else FileKeyRing(file, lambda: datetime.now(UTC))
        self._reload = KeyReload(self._keys)
        authenticator = Authenticator(self._keys, settings.allow_anonymous)
        self.interceptors = (
            RestInterceptor(),
            NativeHeadersInterceptor(),
            AuthenticationInterceptor(authenticator),
            AdmissionInterceptor(self.admission, self._runs),
        )

    def _read_keys(self) -> None:
        """Before the port opens: nobody with a key may be told that it is none."""
        settings = self._settings
        try:
            if self._keys is not None:
                self._keys.load()
        except KeyFileError as error:
            raise StartRefusedError(str(error).splitlines()) from None
        if settings.allow_anonymous and not is_loopback(settings.address):
            _log.warning(
                "no key is asked for, and others reach this address", address=settings.address
            )

    def _runs(self, owner: str, generation_id: str) -> bool:
        return self.registry.kept.find((owner, generation_id)) is not None

    def reload(self) -> None:
        """Read the keys again."""
        self._reload.begin()

    def register(self, server: aio.Server) -> Sequence[str]:
        """Add the servicers. Raises StartRefusedError for a keys file that cannot be used."""
        self._read_keys()
        settings = self._settings
        measured = GatewayMetrics(self.metrics.registry, time.monotonic)
        retained = RetentionMetrics(self.metrics.registry)
        random = Random()  # noqa: S311  # no secret: who gets the next generation
        self.pool = Pool(settings, random, measured.text_rebuilt, measured.moved)
        self.registry = Registry(
            self.pool,
            self.admission,
            time.monotonic,
            settings.render_timeout_s,
            measured,
            settings.retention(),
            retained,
        )
        retained.watch(self.registry.kept)
        admission = self.admission
        measured.watch_queue(lambda: admission.running_count, lambda: admission.waiting_count)
        for tokenizer in self.pool.tokenizers:
            measured.watch_upstream(tokenizer.upstream)
        for worker in self.pool.workers:
            measured.watch_upstream(worker.upstream)
        held = SessionMetrics(self.metrics.registry)
        self.sessions = Sessions(
            open_store(settings.sessions, time.time), settings.sessions, time.time, held.opened
        )
        turns = SessionTurns(self.sessions, self.pool, held.ended)
        self.peers = Peers(
            settings.name or "gateway",
            settings.peers,
            self.sessions.store.leases,
            settings.generation_timeout_s + settings.max_keep_s,
        )
        inference = InferenceServicer(self.pool, self.registry, turns, self.peers, settings)
        inference_pb2_grpc.add_InferenceServiceServicer_to_server(inference, server)
        model_pb2_grpc.add_ModelServiceServicer_to_server(ModelServicer(self.pool), server)
        session_pb2_grpc.add_SessionServiceServicer_to_server(
            SessionServicer(self.sessions, self.pool), server
        )
        openai = OpenAIServicer(
            self.pool, self.registry, self.sessions, turns, self.peers, settings
        )
        openai_pb2_grpc.add_OpenAIServiceServicer_to_server(openai, server)
        status = system_status(
            *(settings.name or "gateway", settings.address),
            lambda: self.state.value,
            self.admission,
            self.pool,
        )
        self.admin = AdminListener(
            admin_servicer(status, self._reload.now), self.metrics.calls, settings.channelz
        )
        services = ("InferenceService", "ModelService", "SessionService")
        return [*(f"hotline.v1.{name}" for name in services), OPENAI]

    async def warm(self) -> None:
        """Begin to watch the processes behind; ready once a tokenizer and a worker serve."""
        if self._settings.admin_address:
            await self.admin.start(self._settings.admin_address)
        try:
            await self.sessions.store.start()
        except DatabaseError as error:
            raise StartRefusedError([f"sessions.sqlite_path: {error}"]) from None
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
        await self._reload.close()
        if hasattr(self, "admin"):
            await self.admin.close()
        if hasattr(self, "pool"):
            await self.registry.close()
            await self.peers.close()
            await self.sessions.store.close()
            await self.pool.close()
