"""POST /v1/chat/completions, streamed and whole."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, TypeAlias

from google.api import httpbody_pb2
from grpc import aio

from services.gateway import openai_wire
from services.gateway.call_caller import caller_of
from services.gateway.call_deadline import deadline_of
from services.gateway.events import Failed, Finished, Reasoning, Text, ToolCall
from services.gateway.interfaces import GenerationRequest
from services.gateway.openai_request import ChatRequest
from services.gateway.openai_response import DONE, AnswerBuilder, ChunkWriter, encode
from services.gateway.pool import Pool
from services.gateway.registry import Registry
from services.gateway.rest_answers import json_body, stream_body
from services.gateway.rest_body import BodyReader
from services.gateway.settings import GatewaySettings
from services.gateway.wire import new_generation_id

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"
_Bodies: TypeAlias = AsyncGenerator[httpbody_pb2.HttpBody, None]


class ChatCompletions:
    """One generation for each call; the call's end, however it comes, ends it."""

    def __init__(
        self, pool: Pool, registry: Registry, bodies: BodyReader, settings: GatewaySettings
    ) -> None:
        self._pool, self._registry, self._bodies = pool, registry, bodies
        self._generation_timeout_s = settings.generation_timeout_s

    async def create(self, request: httpbody_pb2.HttpBody, context: _Context) -> _Bodies:
        """Answer one call."""
        chat = await self._bodies.read(request, ChatRequest)
        model = self._pool.model(chat.model or "", caller_of(context)).name
        deadline_s = deadline_of(context, self._generation_timeout_s)
        generation = openai_wire.generation_request(
            chat, new_generation_id(), model, caller_of(context), deadline_s
        )
        include_usage = bool(chat.stream_options and chat.stream_options.include_usage)
        bodies = (
            self._streamed(generation, include_usage) if chat.stream else self._whole(generation)
        )
        async with aclosing(bodies):
            async for body in bodies:
                yield body

    async def _streamed(self, generation: GenerationRequest, include_usage: bool) -> _Bodies:
        writer = ChunkWriter(
            f"chatcmpl-{generation.generation_id}", int(time.time()), generation.model
        )
        async with aclosing(self._registry.stream(generation)) as events:
            async for numbered in events:
                match numbered.event:
                    case Text(index, text, logprobs):
                        yield stream_body(writer.text(index, text, logprobs))
                    case Reasoning(index, text):
                        yield stream_body(writer.reasoning(index, text))
                    case ToolCall() as call:
                        yield stream_body(writer.tool_call(call))
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
            with_logprobs=generation.sampling.HasField("logprobs"),
        )
        async with aclosing(self._registry.stream(generation)) as events:
            async for numbered in events:
                match numbered.event:
                    case Text(index, text, logprobs):
                        answer.text(index, text, logprobs)
                    case Reasoning(index, text):
                        answer.reasoning(index, text)
                    case ToolCall() as call:
                        answer.tool_call(call)
                    case Failed(error):
                        raise error
                    case Finished(choices, usage):
                        yield json_body(encode(answer.build(list(choices), usage)))
