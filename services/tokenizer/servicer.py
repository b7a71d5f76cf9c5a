"""TokenizerService on the wire; the contract is in tokenizer.proto."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

from grpc import aio
from hotline.v1 import tokenizer_pb2, tokenizer_pb2_grpc

from services.runtime.drain import Drain
from services.runtime.errors import InternalError, UnavailableError
from services.tokenizer import detokenise_wire, wire
from services.tokenizer.admission import Admission
from services.tokenizer.features import FeatureStore
from services.tokenizer.handles import Handles
from services.tokenizer.metrics import TokenizerMetrics
from services.tokenizer.model import Model
from services.tokenizer.multiplex import multiplex
from services.tokenizer.plain_text import PlainText
from services.tokenizer.pool import CpuPool
from services.tokenizer.renderer import Prompt, Renderer
from services.tokenizer.roles import require_role
from services.tokenizer.settings import Role, TokenizerSettings
from services.tokenizer.worker_client import WorkerClient

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"
BACKLOG_LIMIT_IDS = 1 << 20
"""Ids of one Detokenise stream that wait inside; then nothing more of it is read, and flow control holds the sender."""

_DetokeniseRequests: TypeAlias = AsyncIterator[tokenizer_pb2.DetokeniseRequest]
_DetokeniseResponses: TypeAlias = AsyncGenerator[tokenizer_pb2.DetokeniseResponse, None]


SMALL_WORK = 128
"""So many ids and inputs are worked on in the loop, in some 0.1 ms; to change threads and back would take longer."""

SMALL_WORK_WITH_TOOLS = 16
"""The same where texts look for tool calls: 20 to 50 microseconds for an id."""


class TokenizerServicer(tokenizer_pb2_grpc.TokenizerServiceServicer):
    """Check, act, stream; errors are the interceptor's. `model` is set by warm-up, until which nothing is served.

    Args:
        require_serving: raises UnavailableError unless requests are welcome, which they are not before warm-up.
        state: where the process is in its life, as GetTokenizerStatus tells it.
    """

    def __init__(
        self,
        settings: TokenizerSettings,
        require_serving: Callable[[], None],
        state: Callable[[], str],
        metrics: TokenizerMetrics,
    ) -> None:
        self._settings, self._require_serving, self._state = settings, require_serving, state
        # Threads begin with their first work: a pool of a role that the process lacks costs nothing.
        self._render_pool = CpuPool(settings.render_threads, "render")
        self._text_pool = CpuPool(1, "detokenise")
        self.pool = self._render_pool if Role.RENDER in settings.roles else self._text_pool
        self._admission = Admission(settings.max_running, settings.max_waiting)
        self._store = FeatureStore(
            settings.feature_store_bytes, settings.feature_ttl_s, time.monotonic
        )
        self._workers = WorkerClient(settings.workers, settings.push_timeout_s)
        self._streams: set[Handles] = set()
        self._drain = Drain()
        self.model: Model | None = None
        self._metrics = metrics
        for name, documentation, read in (
            ("running", "Calls that have a place among the renders", self._running_count),
            ("waiting", "Calls that wait for such a place", self._waiting_count),
            ("open_handles", "Texts under way on all Detokenise streams", self._open_count),
            ("feature_store_bytes", "Feature tensors that are kept", self._feature_bytes),
        ):
            metrics.watch(name, documentation, read)

    async def Render(
        self, request: tokenizer_pb2.RenderRequest, context: _Context
    ) -> tokenizer_pb2.RenderResponse:
        """Turn a conversation into ids and features."""
        renderer = self._renderer("Render")

        def render() -> tuple[Prompt, tokenizer_pb2.RenderResponse]:
            prompt = self._metrics.rendered(lambda: renderer.render(wire.conversation(request)))
            return prompt, wire.render_response(prompt)

        async with self._admission.place():
            prompt, response = await self._render_pool.run(render)
        for placement in prompt.placements:
            self._store.put(placement.feature)
        return response

    async def PushFeatures(
        self, request: tokenizer_pb2.PushFeaturesRequest, context: _Context
    ) -> tokenizer_pb2.PushFeaturesResponse:
        """Send features to a worker."""
        self._ready("PushFeatures", Role.RENDER)
        digests = wire.digests(request)
        self._workers.require(request.worker)
        pushed_bytes = await self._workers.push(request.worker, self._store.get(digests))
        return tokenizer_pb2.PushFeaturesResponse(pushed_bytes=pushed_bytes)

    async def Detokenise(
        self, requests: _DetokeniseRequests, context: _Context
    ) -> _DetokeniseResponses:
        """Turn ids into text, for all of a gateway's generations."""
        model = self._ready("Detokenise", Role.DETOKENISE)
        handles = Handles(model.output, self._settings.max_open_handles)

        async def process(
            batch: list[tokenizer_pb2.DetokeniseRequest],
        ) -> tokenizer_pb2.DetokeniseResponse | None:
            def work() -> tokenizer_pb2.DetokeniseResponse | None:
                self._metrics.detokenised(detokenise_wire.id_count(batch))
                return detokenise_wire.response(handles.process(detokenise_wire.inputs(batch)))

            limit = SMALL_WORK_WITH_TOOLS if handles.has_tools else SMALL_WORK
            if detokenise_wire.work_count(batch) + handles.waiting_ids <= limit:
                return work()
            return await self._text_pool.run(work)

        self._streams.add(handles)
        try:
            responses = multiplex(
                requests,
                process,
                self._settings.max_queued_messages,
                self._drain,
                is_idle=lambda: not handles and not handles.waiting_ids,
                backlog=lambda: handles.waiting_ids,
                backlog_limit=BACKLOG_LIMIT_IDS,
            )
            async with aclosing(responses):
                async for response in responses:
                    yield response
        finally:
            self._streams.discard(handles)

    async def Tokenize(
        self, request: tokenizer_pb2.TokenizeRequest, context: _Context
    ) -> tokenizer_pb2.TokenizeResponse:
        """Ids of a plain text."""
        plain = self._plain("Tokenize")

        def encode() -> tokenizer_pb2.TokenizeResponse:
            ids = plain.encode(
                request.text, request.parse_special_tokens, request.add_special_tokens
            )
            return tokenizer_pb2.TokenizeResponse(token_ids=ids)

        async with self._admission.place():
            return await self._render_pool.run(encode)

    async def DecodeTokens(
        self, request: tokenizer_pb2.DecodeTokensRequest, context: _Context
    ) -> tokenizer_pb2.DecodeTokensResponse:
        """Text of ids."""
        plain = self._plain("DecodeTokens")

        def decode() -> tokenizer_pb2.DecodeTokensResponse:
            text = plain.decode(request.token_ids, request.skip_special_tokens)
            return tokenizer_pb2.DecodeTokensResponse(text=text)

        async with self._admission.place():
            return await self._render_pool.run(decode)

    async def GetTokenizerStatus(
        self, request: tokenizer_pb2.GetTokenizerStatusRequest, context: _Context
    ) -> tokenizer_pb2.GetTokenizerStatusResponse:
        """Who this process is and how busy; answered in every state."""
        roles = (f"TOKENIZER_ROLE_{role.name}" for role in sorted(self._settings.roles))
        return tokenizer_pb2.GetTokenizerStatusResponse(
            name=self._settings.name,
            state=self._state(),
            roles=map(tokenizer_pb2.TokenizerRole.Value, roles),
            model=self._settings.model_name,
            vocabulary_size=self.model.output.vocabulary_size if self.model else 0,
            running=self._running_count(),
            waiting=self._waiting_count(),
            open_handles=self._open_count(),
            feature_bytes=self._feature_bytes(),
        )

    def _running_count(self) -> int:
        return self._admission.running_count

    def _waiting_count(self) -> int:
        return self._admission.waiting_count

    def _open_count(self) -> int:
        return sum(map(len, self._streams))

    def _feature_bytes(self) -> int:
        return self._store.size_bytes

    def _ready(self, method: str, role: Role) -> Model:
        require_role(method, role, self._settings.roles)
        self._require_serving()
        if self.model is None:  # stopped while warming up
            raise UnavailableError("This process is not ready.", retry_delay_s=1.0)
        return self.model

    def _renderer(self, method: str) -> Renderer:
        renderer = self._ready(method, Role.RENDER).renderer
        if renderer is None:  # the role is there, so is the renderer
            raise InternalError
        return renderer

    def _plain(self, method: str) -> PlainText:
        plain = self._ready(method, Role.RENDER).plain
        if plain is None:  # as above
            raise InternalError
        return plain

    def drain(self) -> None:
        """End Detokenise streams as soon as nothing is open on them; a gateway's would never end by itself."""
        self._drain.ask()

    async def close(self) -> None:
        """Close channels and pools. Idempotent."""
        await self._workers.close()
        self._render_pool.close()
        self._text_pool.close()
