"""OpenAIService: the REST surface behind the edge's transcoder."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, TypeAlias

import msgspec
from google.api import httpbody_pb2
from grpc import aio
from hotline.v1 import openai_pb2, openai_pb2_grpc

from services.gateway import openai_wire
from services.gateway.call_caller import caller_of
from services.gateway.events import Failed, Finished, Reasoning, Text
from services.gateway.interfaces import GenerationRequest
from services.gateway.openai_request import ChatRequest, parse
from services.gateway.openai_response import DONE, AnswerBuilder, ChunkWriter, encode
from services.gateway.pool import Pool, ServedModel
from services.gateway.registry import Registry
from services.gateway.rest_answers import json_body, stream_body
from services.gateway.settings import GatewaySettings
from services.gateway.wire import new_generation_id
from services.runtime.errors import (
    InvalidArgumentError,
    RequestTooLargeError,
    RouteNotFoundError,
    UnavailableError,
    UnimplementedError,
)

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"
_Bodies: TypeAlias = AsyncGenerator[httpbody_pb2.HttpBody, None]

STREAM_METADATA = (
    ("cache-control", "no-cache, no-transform"),
    ("x-accel-buffering", "no"),
)
"""Headers of an event stream: no proxy may buffer or change it."""


class ModelBody(msgspec.Struct):
    """One entry of /v1/models."""

    id: str
    object: str
    created: int
    owned_by: str


class ModelListBody(msgspec.Struct):
    """The body of /v1/models."""

    object: str
    data: list[ModelBody]


class HealthBody(msgspec.Struct):
    """The body of /health."""

    status: str


class OpenAIServicer(openai_pb2_grpc.OpenAIServiceServicer):
    """The contract is in openai.proto; rest_answers.py says how errors travel."""

    def __init__(self, pool: Pool, registry: Registry, settings: GatewaySettings) -> None:
        self._pool, self._registry, self._settings = pool, registry, settings

    async def CreateChatCompletion(
        self, request: httpbody_pb2.HttpBody, context: _Context
    ) -> _Bodies:
        """POST /v1/chat/completions."""
        chat = await self._parsed(request)
        model = self._pool.model(chat.model or "").name
        timeout_s = self._settings.generation_timeout_s
        remaining_s = min(context.time_remaining() or timeout_s, timeout_s)
        generation = openai_wire.generation_request(
            chat, new_generation_id(), model, caller_of(context), time.monotonic() + remaining_s
        )
        include_usage = bool(chat.stream_options and chat.stream_options.include_usage)
        bodies = (
            self._streamed(generation, context, include_usage)
            if chat.stream
            else self._whole(generation)
        )
        async with aclosing(bodies):
            async for body in bodies:
                yield body

    async def _parsed(self, request: httpbody_pb2.HttpBody) -> ChatRequest:
        size, limit = len(request.data), self._settings.max_body_bytes
        if size > limit:
            raise RequestTooLargeError("body", size, limit)
        # Also a guard: a foreign web page may POST anything but JSON here without asking first.
        if request.content_type.partition(";")[0].strip().lower() != "application/json":
            raise InvalidArgumentError("content-type", request.content_type, "application/json")
        if size > self._settings.parse_off_loop_bytes:
            return await asyncio.to_thread(parse, request.data, ChatRequest)
        return parse(request.data, ChatRequest)

    async def _streamed(
        self, generation: GenerationRequest, context: _Context, include_usage: bool
    ) -> _Bodies:
        writer = ChunkWriter(
            f"chatcmpl-{generation.generation_id}", int(time.time()), generation.model
        )
        begun = False
        async with aclosing(self._registry.stream(generation)) as events:
            async for numbered in events:
                if not begun and isinstance(numbered.event, Text | Reasoning | Finished):
                    # Not before: until the first piece an error can still be a status of its own.
                    begun = True
                    await context.send_initial_metadata(STREAM_METADATA)
                match numbered.event:
                    case Text(index, text):
                        yield stream_body(writer.text(index, text))
                    case Reasoning(index, text):
                        yield stream_body(writer.reasoning(index, text))
                    case Failed(error):
                        raise error
                    case Finished(choices, usage):
                        last = b"".join(writer.end(end) for end in choices)
                        last += writer.usage(usage) if include_usage else b""
                        yield stream_body(last + DONE)

    async def _whole(self, generation: GenerationRequest) -> _Bodies:
        answer = AnswerBuilder(
            f"chatcmpl-{generation.generation_id}",
            int(time.time()),
            generation.model,
            generation.choice_count,
        )
        async with aclosing(self._registry.stream(generation)) as events:
            async for numbered in events:
                match numbered.event:
                    case Text(index, text):
                        answer.text(index, text)
                    case Reasoning(index, text):
                        answer.reasoning(index, text)
                    case Failed(error):
                        raise error
                    case Finished(choices, usage):
                        yield json_body(encode(answer.build(list(choices), usage)))

    async def ListOpenAIModels(
        self, request: openai_pb2.ListOpenAIModelsRequest, context: _Context
    ) -> _Bodies:
        """GET /v1/models: canonical names and aliases."""
        entries = [
            _model_body(model, name)
            for model in self._pool.models()
            for name in (model.name, *model.aliases)
        ]
        yield json_body(encode(ModelListBody("list", entries)))

    async def GetOpenAIModel(
        self, request: openai_pb2.GetOpenAIModelRequest, context: _Context
    ) -> _Bodies:
        """GET /v1/models/{model}."""
        yield json_body(encode(_model_body(self._pool.model(request.model), request.model)))

    async def GetHealth(self, request: openai_pb2.GetHealthRequest, context: _Context) -> _Bodies:
        """GET /health, /health/ready, /health/live."""
        if request.probe not in ("", "ready", "live"):
            raise RouteNotFoundError(
                f"/health/{request.probe[:32]} is no route; there are /health, /health/ready, /health/live."
            )
        if request.probe != "live" and not self._pool.ready:
            raise UnavailableError("The model is not ready yet.", retry_delay_s=1.0)
        yield json_body(encode(HealthBody("ok")))

    def CreateCompletion(self, request: httpbody_pb2.HttpBody, context: _Context) -> _Bodies:
        """Not built yet."""
        return _later("POST /v1/completions")

    def CreateTokenization(self, request: httpbody_pb2.HttpBody, context: _Context) -> _Bodies:
        """Not built yet."""
        return _later("POST /v1/tokenize")

    def CreateDetokenization(self, request: httpbody_pb2.HttpBody, context: _Context) -> _Bodies:
        """Not built yet."""
        return _later("POST /v1/detokenize")

    def StreamGenerationEvents(
        self, request: openai_pb2.StreamGenerationEventsRequest, context: _Context
    ) -> _Bodies:
        """Not built yet."""
        return _later("GET /v1/generations/{id}/events")


async def _later(route: str) -> _Bodies:
    if route:
        raise UnimplementedError(route)
    yield httpbody_pb2.HttpBody()  # makes this an async generator, as the interceptors expect


def _model_body(model: ServedModel, name: str) -> ModelBody:
    owner = "hotline" if model.engine == "vllm" else f"hotline ({model.engine} engine)"
    return ModelBody(name, "model", model.create_time_s, owner)
