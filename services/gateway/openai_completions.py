"""POST /v1/completions, streamed and whole."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any, TypeAlias

from google.api import httpbody_pb2
from grpc import aio

from services.gateway import completion_wire
from services.gateway.call_caller import caller_of
from services.gateway.call_deadline import deadline_of
from services.gateway.call_entry import entry_of_call
from services.gateway.completion_request import CompletionRequest, read_prompts
from services.gateway.completion_response import TextCompletionWriter
from services.gateway.events import Finished, Text
from services.gateway.openai_response import DONE, encode
from services.gateway.parameter_body import read_parameters
from services.gateway.pool import Pool
from services.gateway.registry import Registry
from services.gateway.rest_answers import json_body, stream_body
from services.gateway.rest_body import BodyReader
from services.gateway.settings import GatewaySettings
from services.gateway.side_by_side import as_one
from services.gateway.wire import new_generation_id
from services.runtime.errors import InvalidArgumentError

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"
_Bodies: TypeAlias = AsyncGenerator[httpbody_pb2.HttpBody, None]
_Events: TypeAlias = AsyncGenerator[Text | Finished, None]


class Completions:
    """A generation for each prompt of a call; the call's end, however it comes, ends them all."""

    def __init__(
        self, pool: Pool, registry: Registry, bodies: BodyReader, settings: GatewaySettings
    ) -> None:
        self._pool, self._registry, self._bodies = pool, registry, bodies
        self._generation_timeout_s = settings.generation_timeout_s

    async def create(self, request: httpbody_pb2.HttpBody, context: _Context) -> _Bodies:
        """Answer one call."""
        body = await self._bodies.read(request, CompletionRequest)
        caller = caller_of(context)
        model = self._pool.model(body.model or "", caller).name
        given = read_parameters(body)
        add_special_tokens = given.value("add_special_tokens", True)
        prompts = await self._bodies.work(
            len(request.data), partial(read_prompts, body.prompt, add_special_tokens)
        )
        _check_seats(len(prompts))
        deadline_s = deadline_of(context, self._generation_timeout_s)
        first = completion_wire.generation_request(
            given, new_generation_id(), model, caller, deadline_s
        )
        generations = completion_wire.of_prompts(first, prompts)
        streams = [self._registry.stream(generation) for generation in generations]
        writer = TextCompletionWriter(
            f"cmpl-{first.generation_id}",
            int(time.time()),
            model,
            len(streams) * first.choice_count,
            with_logprobs=first.sampling.HasField("logprobs"),
        )
        include_usage = bool(body.stream_options and body.stream_options.include_usage)
        async with aclosing(as_one(streams, first.choice_count)) as events:
            bodies = (
                _streamed(events, writer, include_usage) if body.stream else _whole(events, writer)
            )
            async with aclosing(bodies):
                async for answer in bodies:
                    yield answer


def _check_seats(count: int) -> None:
    """Raises InvalidArgumentError for more prompts than can ever run together: to try again would not help."""
    entry = entry_of_call()
    if entry is not None and count > entry.most_seats:
        limit = f"at most {entry.most_seats:g} prompts, the generations that this caller may have at once"
        raise InvalidArgumentError("prompt", f"{count} prompts", limit)


async def _streamed(events: _Events, writer: TextCompletionWriter, include_usage: bool) -> _Bodies:
    async for event in events:
        if isinstance(event, Text):
            yield stream_body(writer.text(event.choice_index, event.text, event.logprobs))
        else:
            last = b"".join(map(writer.end, event.choices))
            last += writer.usage(event.usage) if include_usage else b""
            yield stream_body(last + DONE)


async def _whole(events: _Events, writer: TextCompletionWriter) -> _Bodies:
    async for event in events:
        if isinstance(event, Text):
            writer.keep(event.choice_index, event.text, event.logprobs)
        else:
            yield json_body(encode(writer.whole(event.choices, event.usage)))
