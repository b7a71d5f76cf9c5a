"""The OpenAI surface: every route of OpenAIService, and who answers it."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, TypeAlias

from google.api import httpbody_pb2
from grpc import aio
from hotline.v1 import openai_pb2, openai_pb2_grpc

from services.gateway import openai_models, openapi_document
from services.gateway.call_caller import caller_of
from services.gateway.cancellation import Cancellation
from services.gateway.generation_routes import GenerationRoutes
from services.gateway.openai_chat import ChatCompletions
from services.gateway.openai_completions import Completions
from services.gateway.openai_plain_text import PlainTextRoutes
from services.gateway.peers import Peers
from services.gateway.pool import Pool
from services.gateway.registry import Registry
from services.gateway.rest_answers import json_body
from services.gateway.rest_body import BodyReader
from services.gateway.session_routes import SessionRoutes
from services.gateway.session_turns import SessionTurns
from services.gateway.sessions.sessions import Sessions
from services.gateway.settings import GatewaySettings

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"
_Bodies: TypeAlias = AsyncGenerator[httpbody_pb2.HttpBody, None]


class OpenAIServicer(openai_pb2_grpc.OpenAIServiceServicer):
    """The contract is in openai.proto; rest_answers.py says how errors travel."""

    def __init__(
        self,
        pool: Pool,
        registry: Registry,
        sessions: Sessions,
        turns: SessionTurns,
        peers: Peers,
        settings: GatewaySettings,
    ) -> None:
        self._pool = pool
        bodies = BodyReader(settings)
        self._chat = ChatCompletions(turns, registry, bodies, peers, settings)
        self._sessions = SessionRoutes(sessions, pool, bodies)
        self._completions = Completions(pool, registry, bodies, peers, settings)
        self._generations = GenerationRoutes(
            registry, Cancellation(pool, registry, peers), peers, settings
        )
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
        """GET /v1/generations/{id}/events."""
        return self._generations.events(request, context)

    def CancelGeneration(
        self, request: openai_pb2.CancelGenerationRequest, context: _Context
    ) -> _Bodies:
        """POST /v1/generations/{id}/cancel."""
        return self._generations.cancel(request, context)

    def CreateSessionObject(self, request: httpbody_pb2.HttpBody, context: _Context) -> _Bodies:
        """POST /v1/sessions."""
        return self._sessions.create(request, context)

    def ListSessionObjects(
        self, request: openai_pb2.ListSessionObjectsRequest, context: _Context
    ) -> _Bodies:
        """GET /v1/sessions."""
        return self._sessions.page(request, context)

    def GetSessionObject(
        self, request: openai_pb2.GetSessionObjectRequest, context: _Context
    ) -> _Bodies:
        """GET /v1/sessions/{session_id}."""
        return self._sessions.get(request, context)

    def DeleteSessionObject(
        self, request: openai_pb2.DeleteSessionObjectRequest, context: _Context
    ) -> _Bodies:
        """DELETE /v1/sessions/{session_id}."""
        return self._sessions.delete(request, context)

    def TouchSessionObject(
        self, request: openai_pb2.TouchSessionObjectRequest, context: _Context
    ) -> _Bodies:
        """POST /v1/sessions/{session_id}/touch."""
        return self._sessions.touch(request, context)

    def ClearKeyValueCache(self, request: httpbody_pb2.HttpBody, context: _Context) -> _Bodies:
        """POST /v1/kvcache/clear."""
        return self._sessions.clear(request, context)
