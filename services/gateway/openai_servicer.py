"""The OpenAI surface: every route of OpenAIService, and who answers it."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, TypeAlias

from google.api import httpbody_pb2
from grpc import aio
from hotline.v1 import openai_pb2, openai_pb2_grpc

from services.gateway import openai_models, openapi_document
from services.gateway.call_caller import caller_of
from services.gateway.openai_chat import ChatCompletions
from services.gateway.openai_completions import Completions
from services.gateway.openai_plain_text import PlainTextRoutes
from services.gateway.pool import Pool
from services.gateway.registry import Registry
from services.gateway.rest_answers import json_body
from services.gateway.rest_body import BodyReader
from services.gateway.settings import GatewaySettings
from services.runtime.errors import UnimplementedError

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"
_Bodies: TypeAlias = AsyncGenerator[httpbody_pb2.HttpBody, None]


class OpenAIServicer(openai_pb2_grpc.OpenAIServiceServicer):
    """The contract is in openai.proto; rest_answers.py says how errors travel."""

    def __init__(self, pool: Pool, registry: Registry, settings: GatewaySettings) -> None:
        self._pool = pool
        bodies = BodyReader(settings)
        self._chat = ChatCompletions(pool, registry, bodies, settings)
        self._completions = Completions(pool, registry, bodies, settings)
        self._plain_text = PlainTextRoutes(pool, bodies, settings)

    def CreateChatCompletion(self, request: httpbody_pb2.HttpBody, context: _Context) -> _Bodies:
        """POST /v1/chat/completions."""
        return self._chat.create(request, context)

    async def ListOpenAIModels(
        self, request: openai_pb2.ListOpenAIModelsRequest, context: _Context
    ) -> _Bodies:
        """GET /v1/models."""
        yield json_body(openai_models.model_list(self._pool, caller_of(context)))

    async def GetOpenAIModel(
        self, request: openai_pb2.GetOpenAIModelRequest, context: _Context
    ) -> _Bodies:
        """GET /v1/models/{model}."""
        yield json_body(openai_models.one_model(self._pool, request.model, caller_of(context)))

    async def GetHealth(self, request: openai_pb2.GetHealthRequest, context: _Context) -> _Bodies:
        """GET /health, /health/ready, /health/live."""
        yield json_body(openai_models.health(self._pool, request.probe))

    def CreateCompletion(self, request: httpbody_pb2.HttpBody, context: _Context) -> _Bodies:
        """POST /v1/completions."""
        return self._completions.create(request, context)

    def CreateTokenization(self, request: httpbody_pb2.HttpBody, context: _Context) -> _Bodies:
        """POST /v1/tokenize."""
        return self._plain_text.tokenize(request, context)

    def CreateDetokenization(self, request: httpbody_pb2.HttpBody, context: _Context) -> _Bodies:
        """POST /v1/detokenize."""
        return self._plain_text.detokenize(request, context)

    async def GetOpenAPIDocument(
        self, request: openai_pb2.GetOpenAPIDocumentRequest, context: _Context
    ) -> _Bodies:
        """GET /openapi.json."""
        # Made once, which takes some 30 ms.
        yield json_body(await asyncio.to_thread(openapi_document.encoded))

    def StreamGenerationEvents(
        self, request: openai_pb2.StreamGenerationEventsRequest, context: _Context
    ) -> _Bodies:
        """Not built yet."""
        return _later("GET /v1/generations/{id}/events")


async def _later(route: str) -> _Bodies:
    if route:
        raise UnimplementedError(route)
    yield httpbody_pb2.HttpBody()  # makes this an async generator, as the interceptors expect
