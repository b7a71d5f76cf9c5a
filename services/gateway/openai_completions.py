"""POST /v1/completions, streamed and whole."""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, TypeAlias

from google.api import httpbody_pb2
from grpc import aio

from services.gateway import completion_wire
from services.gateway.call_caller import caller_of
from services.gateway.call_deadline import deadline_of
from services.gateway.call_entry import entry_of_call
from services.gateway.call_headers import add_header
from services.gateway.completion_request import CompletionRequest, read_prompts
from services.gateway.completion_response import TextCompletionWriter
from services.gateway.events import Failed, Finished, Numbered, Text
from services.gateway.offered_id import GENERATION_ID_KEY
from services.gateway.openai_response import encode
from services.gateway.parameter_body import read_parameters
from services.gateway.peers import Peers
from services.gateway.pool import Pool
from services.gateway.registry import Registry
from services.gateway.rest_answers import PREFIX, json_body
from services.gateway.rest_body import BodyReader
from services.gateway.rest_form import RestForm, begun_s
from services.gateway.rest_retention import KEEP_FIELD, read_wish
from services.gateway.rest_stream import streamed
from services.gateway.settings import GatewaySettings
from services.gateway.side_by_side import as_one
from services.runtime.errors import InvalidArgumentError

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"
_Bodies: TypeAlias = AsyncGenerator[httpbody_pb2.HttpBody, None]
_Events: TypeAlias = AsyncGenerator[Numbered, None]

_METHOD = PREFIX + "CreateCompletion"


class Completions:
    """A generation for each prompt of a call; the call's end, however it comes, ends them all, unless the one is to be kept."""

    def __init__(
        self,
        pool: Pool,
        registry: Registry,
        bodies: BodyReader,
        peers: Peers,
        settings: GatewaySettings,
    ) -> None:
        self._pool, self._registry, self._bodies = pool, registry, bodies
        self._peers = peers
        self._generation_timeout_s = settings.generation_timeout_s
        self._heartbeat_s = settings.sse_heartbeat_s

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
        limits = self._registry.limits
        wish = await read_wish(request, body, context, self._bodies, limits)
        _check_kept(wish.keep_s, len(prompts))
        first = completion_wire.generation_request(
            given, wish.generation_id, model, caller, deadline_s
        )
        generations = completion_wire.of_prompts(first, prompts)
        kept = self._registry.kept.find((caller.owner, wish.generation_id))
        form = RestForm(
            is_chat=False,
            generation_id=wish.generation_id,
            created_s=begun_s(kept, time.time()),
            model=model,
            choice_count=len(generations) * first.choice_count,
            with_logprobs=first.sampling.HasField("logprobs"),
            include_usage=bool(body.stream_options and body.stream_options.include_usage),
            is_numbered=wish.keep_s > 0,
        )
        add_header(GENERATION_ID_KEY, wish.generation_id)
        retention = wish.retention(form, limits)
        heartbeat_s = self._heartbeat_s if body.stream else 0.0
        several = len(generations) > 1  # then nothing comes of any before all were accepted

        def here() -> _Bodies:
            streams = [self._registry.stream(one, retention, heartbeat_s) for one in generations]
            events = _merged(streams, first.choice_count) if several else streams[0]
            if body.stream:
                return streamed(events, form.chunks(), was_accepted=several)
            return _whole(events, form)

        if retention is None or several:
            bodies = here()
        else:
            name, call = wish.generation_id, (_METHOD, request, httpbody_pb2.HttpBody, context)
            bodies = self._peers.begun(caller.owner, name, here, *call)
        async with aclosing(bodies):
            async for answer in bodies:
                yield answer


def _check_seats(count: int) -> None:
    """Raises InvalidArgumentError for more prompts than can ever run together: to try again would not help."""
    entry = entry_of_call()
    if entry is not None and count > entry.most_seats:
        limit = f"at most {entry.most_seats:g} prompts, the generations that this caller may have at once"
        raise InvalidArgumentError("prompt", f"{count} prompts", limit)


def _check_kept(keep_s: float, count: int) -> None:
    if keep_s and count > 1:
        raise InvalidArgumentError(
            KEEP_FIELD, f"{keep_s:g}", "absent where there are several prompts"
        )


async def _merged(streams: Sequence[_Events], choices_each: int) -> _Events:
    async with aclosing(as_one(streams, choices_each)) as events:
        async for event in events:
            yield Numbered(0, event)


async def _whole(events: _Events, form: RestForm) -> _Bodies:
    writer = TextCompletionWriter(
        form.answer_id, form.created_s, form.model, form.choice_count, form.with_logprobs
    )
    async with aclosing(events):
        async for numbered in events:
            match numbered.event:
                case Text(index, text, logprobs):
                    writer.keep(index, text, logprobs)
                case Failed(error):
                    raise error
                case Finished(choices, usage):
                    yield json_body(encode(writer.whole(choices, usage)))
