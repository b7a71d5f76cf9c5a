"""POST /v1/tokenize and /v1/detokenize."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Any, TypeAlias

from google.api import httpbody_pb2
from grpc import aio

from services.gateway import openai_wire, plain_text_request
from services.gateway.call_caller import caller_of
from services.gateway.call_deadline import remaining_s
from services.gateway.field_names import renamed
from services.gateway.id_copy import copy_ids
from services.gateway.openai_request import check_messages
from services.gateway.openai_response import encode
from services.gateway.parameter_body import read_parameters
from services.gateway.plain_text_request import (
    DetokenizeAnswer,
    DetokenizeRequest,
    TokenizeAnswer,
    TokenizeRequest,
)
from services.gateway.pool import Pool
from services.gateway.renderers import Renderers
from services.gateway.rest_answers import json_body
from services.gateway.rest_body import BodyReader
from services.gateway.settings import GatewaySettings
from services.runtime.errors import ServiceError
from services.runtime.plain_text_limits import check_id_count, check_text

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"
_Bodies: TypeAlias = AsyncGenerator[httpbody_pb2.HttpBody, None]
_NAMES = {"text": "prompt", "token_ids": "tokens"}
"""What the tokenizer calls a field -> what the client does."""


class PlainTextRoutes:
    """Texts and conversations to ids, and ids to text."""

    def __init__(self, pool: Pool, bodies: BodyReader, settings: GatewaySettings) -> None:
        self._pool, self._bodies = pool, bodies
        self._render_timeout_s = settings.render_timeout_s

    async def tokenize(self, request: httpbody_pb2.HttpBody, context: _Context) -> _Bodies:
        """Ids as POST /v1/completions would take the text, or POST /v1/chat/completions the messages."""
        wanted = await self._bodies.read(request, TokenizeRequest)
        model = self._pool.model(wanted.model or "", caller_of(context))
        plain_text_request.check(wanted)
        limit_s = remaining_s(context, self._render_timeout_s)
        try:
            made = await self._ids(wanted, model.name, limit_s)
        except ServiceError as error:
            raise renamed(error, _NAMES) from error
        ids: list[int] = []
        await copy_ids(made, ids)
        answer = TokenizeAnswer(len(ids), model.context_tokens, ids)
        yield json_body(await asyncio.to_thread(encode, answer))

    async def _ids(self, wanted: TokenizeRequest, model: str, limit_s: float) -> Sequence[int]:
        if wanted.prompt is None:
            check_messages(wanted.messages or [])
            conversation = openai_wire.conversation(wanted)
            rendered = await self._renderers(model).ask(
                lambda renderer, limit_s: renderer.render(conversation, limit_s), limit_s
            )
            return rendered.token_ids
        read_parameters(wanted)  # they have no use here, but nothing wrong passes
        text, add = wanted.prompt, wanted.add_special_tokens is not False
        check_text(text)
        return await self._renderers(model).ask(
            lambda renderer, limit_s: renderer.tokenize(text, limit_s, True, add), limit_s
        )

    def _renderers(self, model: str) -> Renderers:
        return Renderers(self._pool, model, time.monotonic)

    async def detokenize(self, request: httpbody_pb2.HttpBody, context: _Context) -> _Bodies:
        """The text of ids, control tokens included."""
        wanted = await self._bodies.read(request, DetokenizeRequest)
        model = self._pool.model(wanted.model or "", caller_of(context)).name
        ids = await self._bodies.work(
            len(request.data), partial(plain_text_request.token_ids, wanted)
        )
        try:
            check_id_count(ids)
            text = await self._renderers(model).ask(
                lambda renderer, limit_s: renderer.decode_tokens(ids, False, limit_s),
                remaining_s(context, self._render_timeout_s),
            )
        except ServiceError as error:
            raise renamed(error, _NAMES) from error
        yield json_body(await asyncio.to_thread(encode, DetokenizeAnswer(text)))
