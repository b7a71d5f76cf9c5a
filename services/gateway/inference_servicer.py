"""InferenceService and ModelService, for native clients."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
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
from services.gateway.events import Failed, Finished
from services.gateway.pool import Pool
from services.gateway.registry import Registry
from services.gateway.renderers import Renderers
from services.gateway.settings import GatewaySettings
from services.gateway.worker_id import worker_generation_id
from services.runtime.errors import UnimplementedError
from services.runtime.plain_text_limits import check_id_count, check_text

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"


class InferenceServicer(inference_pb2_grpc.InferenceServiceServicer):
    """Generation for clients; the contract is in inference.proto."""

    def __init__(self, pool: Pool, registry: Registry, settings: GatewaySettings) -> None:
        self._pool, self._registry = pool, registry
        self._generation_timeout_s = settings.generation_timeout_s
        self._render_timeout_s = settings.render_timeout_s

    async def Generate(
        self, request: inference_pb2.GenerateRequest, context: _Context
    ) -> AsyncGenerator[generation_pb2.GenerationEvent, None]:
        """Stream one generation; the reader's going cancels it."""
        remaining_s = min(
            context.time_remaining() or self._generation_timeout_s, self._generation_timeout_s
        )
        deadline_s = time.monotonic() + remaining_s
        model = self._pool.model(request.model, caller_of(context)).name
        generation = wire.generation_request(request, model, caller_of(context), deadline_s)
        accepted = False
        async with aclosing(self._registry.stream(generation)) as events:
            async for numbered in events:
                if isinstance(numbered.event, Failed) and not accepted:
                    raise numbered.event.error
                accepted = True
                yield wire.event(numbered)
                if isinstance(numbered.event, Finished | Failed):
                    return

    def Resume(
        self, request: inference_pb2.ResumeRequest, context: _Context
    ) -> AsyncGenerator[generation_pb2.GenerationEvent, None]:
        """Not built yet."""
        return _later("InferenceService.Resume")

    async def Cancel(
        self, request: inference_pb2.CancelRequest, context: _Context
    ) -> inference_pb2.CancelResponse:
        """End a generation of the caller: here, or on whatever worker another gateway has it running."""
        owner, generation_id = caller_of(context).owner, request.generation_id
        wire.check_generation_id(generation_id)
        cancelled = self._registry.cancel(owner, generation_id)
        if not cancelled:
            cancelled = await self._pool.abort(worker_generation_id(owner, generation_id))
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


async def _later(method: str) -> AsyncGenerator[generation_pb2.GenerationEvent, None]:
    if method:
        raise UnimplementedError(method)
    yield generation_pb2.GenerationEvent()  # makes this an async generator, as the interceptor expects


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
