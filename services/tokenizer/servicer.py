"""TokenizerService on the wire; the contract is in tokenizer.proto."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

from grpc import aio
from hotline.v1 import tokenizer_pb2, tokenizer_pb2_grpc

from services.runtime.admission import Admission
from services.runtime.errors import UnavailableError, UnimplementedError
from services.tokenizer import detokenise_wire, wire
from services.tokenizer.features import FeatureStore
from services.tokenizer.handles import Handles
from services.tokenizer.model import Model
from services.tokenizer.multiplex import Drain, multiplex
from services.tokenizer.pool import CpuPool
from services.tokenizer.renderer import Prompt
from services.tokenizer.settings import TokenizerSettings
from services.tokenizer.worker_client import WorkerClient

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"
_DetokeniseRequests: TypeAlias = AsyncIterator[tokenizer_pb2.DetokeniseRequest]
_DetokeniseResponses: TypeAlias = AsyncGenerator[tokenizer_pb2.DetokeniseResponse, None]


class TokenizerServicer(tokenizer_pb2_grpc.TokenizerServiceServicer):
    """Check, act, stream; errors are the interceptor's. `model` is set by warm-up, until which nothing is served.

    Args:
        require_serving: raises UnavailableError unless requests are welcome, which they are not before warm-up.
    """

    def __init__(self, settings: TokenizerSettings, require_serving: Callable[[], None]) -> None:
        self._settings, self._require_serving = settings, require_serving
        self.render_pool = CpuPool(settings.render_threads, "render")
        self._text_pool = CpuPool(1, "detokenise")
        self._admission = Admission(settings.max_running, settings.max_waiting)
        self._store = FeatureStore(
            settings.feature_store_bytes, settings.feature_ttl_s, time.monotonic
        )
        self._workers = WorkerClient(settings.workers, settings.push_timeout_s)
        self._streams: set[Handles] = set()
        self._drain = Drain()
        self.model: Model | None = None

    async def Render(
        self, request: tokenizer_pb2.RenderRequest, context: _Context
    ) -> tokenizer_pb2.RenderResponse:
        """Turn a conversation into ids and features."""
        model = self._ready()

        def render() -> tuple[Prompt, tokenizer_pb2.RenderResponse]:
            prompt = model.renderer.render(wire.conversation(request))
            return prompt, wire.render_response(prompt)

        async with self._admission.place():
            prompt, response = await self.render_pool.run(render)
        for placement in prompt.placements:
            self._store.put(placement.feature)
        return response

    async def PushFeatures(
        self, request: tokenizer_pb2.PushFeaturesRequest, context: _Context
    ) -> tokenizer_pb2.PushFeaturesResponse:
        """Send features to a worker."""
        self._ready()
        digests = wire.digests(request)
        self._workers.require(request.worker)
        pushed_bytes = await self._workers.push(request.worker, self._store.get(digests))
        return tokenizer_pb2.PushFeaturesResponse(pushed_bytes=pushed_bytes)

    async def Detokenise(
        self, requests: _DetokeniseRequests, context: _Context
    ) -> _DetokeniseResponses:
        """Turn ids into text, for all of a gateway's generations."""
        handles = Handles(self._ready().output, self._settings.max_open_handles)

        async def process(
            batch: list[tokenizer_pb2.DetokeniseRequest],
        ) -> tokenizer_pb2.DetokeniseResponse | None:
            return await self._text_pool.run(
                lambda: detokenise_wire.response(handles.process(detokenise_wire.inputs(batch)))
            )

        self._streams.add(handles)
        try:
            responses = multiplex(
                requests,
                process,
                self._settings.max_queued_messages,
                self._drain,
                is_idle=lambda: len(handles) == 0,
            )
            async with aclosing(responses):
                async for response in responses:
                    yield response
        finally:
            self._streams.discard(handles)

    async def Tokenize(
        self, request: tokenizer_pb2.TokenizeRequest, context: _Context
    ) -> tokenizer_pb2.TokenizeResponse:
        """Not in this version."""
        raise UnimplementedError("Tokenize")

    async def GetTokenizerStatus(
        self, request: tokenizer_pb2.GetTokenizerStatusRequest, context: _Context
    ) -> tokenizer_pb2.GetTokenizerStatusResponse:
        """How busy this process is."""
        model = self._ready()
        return tokenizer_pb2.GetTokenizerStatusResponse(
            model=self._settings.model_name,
            vocabulary_size=model.output.vocabulary_size,
            running=self._admission.running_count,
            waiting=self._admission.waiting_count,
            open_handles=sum(map(len, self._streams)),
            feature_bytes=self._store.size_bytes,
        )

    def _ready(self) -> Model:
        self._require_serving()
        if self.model is None:  # stopped while warming up
            raise UnavailableError("This process is not ready.", retry_delay_s=1.0)
        return self.model

    def drain(self) -> None:
        """End Detokenise streams as soon as nothing is open on them; a gateway's would never end by itself."""
        self._drain.ask()

    async def close(self) -> None:
        """Close channels and pools. Idempotent."""
        await self._workers.close()
        self.render_pool.close()
        self._text_pool.close()
