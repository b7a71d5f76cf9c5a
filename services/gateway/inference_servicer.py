"""InferenceService and ModelService, for native clients."""

import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, TypeAlias

from grpc import aio
from hotline.v1 import (
    generation_pb2,
    inference_pb2,
    inference_pb2_grpc,
    model_pb2,
    model_pb2_grpc,
)

from services.gateway import token_wire, wire
from services.gateway.call_caller import caller_of
from services.gateway.cancellation import Cancellation
from services.gateway.native_streams import NativeStreams
from services.gateway.peers import Peers
from services.gateway.pool import Pool
from services.gateway.registry import Registry
from services.gateway.renderers import Renderers
from services.gateway.session_turns import SessionTurns
from services.gateway.settings import GatewaySettings
from services.runtime.plain_text_limits import check_id_count, check_text

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"
_Events: TypeAlias = AsyncGenerator[generation_pb2.GenerationEvent, None]


class InferenceServicer(inference_pb2_grpc.InferenceServiceServicer):
    """Generation for clients; the contract is in inference.proto."""

    def __init__(
        self,
        pool: Pool,
        registry: Registry,
        turns: SessionTurns,
        peers: Peers,
        settings: GatewaySettings,
    ) -> None:
        self._pool, self._cancellation = pool, Cancellation(pool, registry, peers)
        self._streams = NativeStreams(turns, registry, peers, settings)
        self._render_timeout_s = settings.render_timeout_s

    def Generate(self, request: inference_pb2.GenerateRequest, context: _Context) -> _Events:
        """Stream one generation."""
        return self._streams.generate(request, context)

    def GeneratePaced(
        self, request_iterator: AsyncIterator[inference_pb2.GeneratePacedRequest], context: _Context
    ) -> _Events:
        """Stream one generation at the client's pace."""
        return self._streams.paced(request_iterator, context)

    def Resume(self, request: inference_pb2.ResumeRequest, context: _Context) -> _Events:
        """Go on with a stream."""
        return self._streams.resume(request, context)

    async def Cancel(
        self, request: inference_pb2.CancelRequest, context: _Context
    ) -> inference_pb2.CancelResponse:
        """End a generation of the caller: here, or on whatever worker another gateway has it running."""
        wire.check_generation_id(request.generation_id)
        owner = caller_of(context).owner
        cancelled = await self._cancellation.cancel(owner, request.generation_id, context)
        return inference_pb2.CancelResponse(cancelled=cancelled)

    async def CountTokens(
        self, request: inference_pb2.CountTokensRequest, context: _Context
    ) -> inference_pb2.CountTokensResponse:
        """Render a conversation, and count what came of it."""
        model = self._pool.model(request.model, caller_of(context))
        conversation = token_wire.conversation(request)
        rendered = await self._renderers(model.name).ask(
            lambda renderer, limit_s: renderer.render(conversation, limit_s), self._limit_s(context)
        )
        return token_wire.count(rendered, model.context_tokens)

    async def Tokenize(
        self, request: inference_pb2.TokenizeTextRequest, context: _Context
    ) -> inference_pb2.TokenizeTextResponse:
        """Ids of a plain text."""
        model = self._pool.model(request.model, caller_of(context))
        check_text(request.text)
        how = (request.parse_special_tokens, request.add_special_tokens)
        ids = await self._renderers(model.name).ask(
            lambda renderer, limit_s: renderer.tokenize(request.text, limit_s, *how),
            self._limit_s(context),
        )
        return await token_wire.ids(ids, model.context_tokens)

    async def Detokenise(
        self, request: inference_pb2.DetokeniseIdsRequest, context: _Context
    ) -> inference_pb2.DetokeniseIdsResponse:
        """Text of ids."""
        model = self._pool.model(request.model, caller_of(context))
        check_id_count(request.token_ids)
        ids, skip = request.token_ids, request.skip_special_tokens
        text = await self._renderers(model.name).ask(
            lambda renderer, limit_s: renderer.decode_tokens(ids, skip, limit_s),
            self._limit_s(context),
        )
        return inference_pb2.DetokeniseIdsResponse(text=text)

    def _renderers(self, model: str) -> Renderers:
        return Renderers(self._pool, model, time.monotonic)

    def _limit_s(self, context: _Context) -> float:
        remaining_s = context.time_remaining()
        limit_s = self._render_timeout_s
        return limit_s if remaining_s is None else min(remaining_s, limit_s)


class ModelServicer(model_pb2_grpc.ModelServiceServicer):
    """What can be asked; the contract is in model.proto."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def ListModels(
        self, request: model_pb2.ListModelsRequest, context: _Context
    ) -> model_pb2.ListModelsResponse:
        """The models, the default one first."""
        return model_pb2.ListModelsResponse(
            models=map(wire.model, self._pool.models(caller_of(context)))
        )

    async def GetModel(
        self, request: model_pb2.GetModelRequest, context: _Context
    ) -> model_pb2.GetModelResponse:
        """One model, by name or alias."""
        return model_pb2.GetModelResponse(
            model=wire.model(self._pool.model(request.name, caller_of(context)))
        )
