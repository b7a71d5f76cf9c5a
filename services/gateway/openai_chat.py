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
from services.gateway.call_headers import add_header
from services.gateway.events import Failed, Finished, Numbered, Reasoning, Text, ToolCall
from services.gateway.offered_id import GENERATION_ID_KEY
from services.gateway.openai_request import ChatRequest
from services.gateway.openai_response import AnswerBuilder, encode
from services.gateway.peers import Peers
from services.gateway.registry import Registry
from services.gateway.rest_answers import PREFIX, json_body
from services.gateway.rest_body import BodyReader
from services.gateway.rest_form import RestForm, begun_s
from services.gateway.rest_retention import read_wish
from services.gateway.rest_stream import streamed
from services.gateway.session_choice import session_of, waits
from services.gateway.session_turns import SessionTurns
from services.gateway.settings import GatewaySettings

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"
_Bodies: TypeAlias = AsyncGenerator[httpbody_pb2.HttpBody, None]

_METHOD = PREFIX + "CreateChatCompletion"


class ChatCompletions:
    """One generation for each call; the call's end, however it comes, ends it, unless it is to be kept."""

    def __init__(
        self,
        turns: SessionTurns,
        registry: Registry,
        bodies: BodyReader,
        peers: Peers,
        settings: GatewaySettings,
    ) -> None:
        self._turns, self._registry, self._bodies = turns, registry, bodies
        self._peers = peers
        self._generation_timeout_s = settings.generation_timeout_s
        self._heartbeat_s = settings.sse_heartbeat_s

    async def create(self, request: httpbody_pb2.HttpBody, context: _Context) -> _Bodies:
        """Answer one call."""
        chat = await self._bodies.read(request, ChatRequest)
        caller = caller_of(context)
        session_id = session_of(context, chat)
        served, session = await self._turns.model(session_id, chat.model or "", caller)
        model = served.name
        deadline_s = deadline_of(context, self._generation_timeout_s)
        limits = self._registry.limits
        wish = await read_wish(request, chat, context, self._bodies, limits)
        generation = openai_wire.generation_request(
            chat, wish.generation_id, model, caller, deadline_s
        )
        generation = self._turns.turn(generation, session, served, waits(chat))
        kept = self._registry.kept.find((generation.owner, wish.generation_id))
        form = RestForm(
            is_chat=True,
            generation_id=wish.generation_id,
            created_s=begun_s(kept, time.time()),
            model=model,
            choice_count=generation.choice_count,
            with_logprobs=generation.sampling.HasField("logprobs"),
            include_usage=bool(chat.stream_options and chat.stream_options.include_usage),
            is_numbered=wish.keep_s > 0,
        )
        add_header(GENERATION_ID_KEY, wish.generation_id)
        heartbeat_s = self._heartbeat_s if chat.stream else 0.0
        retention = wish.retention(form, limits)

        def here() -> _Bodies:
            events = self._registry.stream(generation, retention, heartbeat_s)
            return streamed(events, form.chunks()) if chat.stream else _whole(events, form)

        if retention is None:
            bodies = here()
        else:
            name, call = wish.generation_id, (_METHOD, request, httpbody_pb2.HttpBody, context)
            bodies = self._peers.begun(caller.owner, name, here, *call)
        async with aclosing(bodies):
            async for body in bodies:
                yield body


async def _whole(events: AsyncGenerator[Numbered, None], form: RestForm) -> _Bodies:
    answer = AnswerBuilder(
        form.answer_id, form.created_s, form.model, form.choice_count, form.with_logprobs
    )
    async with aclosing(events):
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
