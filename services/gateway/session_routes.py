"""The REST routes of sessions."""

from collections.abc import AsyncGenerator
from typing import Any, TypeAlias

from google.api import httpbody_pb2
from grpc import aio
from hotline.v1 import openai_pb2

from services.gateway import session_bodies
from services.gateway.call_caller import caller_of
from services.gateway.openai_request import check_messages
from services.gateway.openai_response import encode
from services.gateway.openai_wire import message_of
from services.gateway.pool import Pool
from services.gateway.rest_answers import json_body
from services.gateway.rest_body import BodyReader
from services.gateway.session_opening import SessionOpening
from services.gateway.session_wire import check_page_size
from services.gateway.sessions.sessions import Sessions, TtlFields

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"
_Bodies: TypeAlias = AsyncGenerator[httpbody_pb2.HttpBody, None]
_TTLS = TtlFields("ttl_seconds", "absolute_ttl_seconds")


class SessionRoutes:
    """Sessions, as JSON."""

    def __init__(self, sessions: Sessions, pool: Pool, bodies: BodyReader) -> None:
        self._sessions, self._bodies = sessions, bodies
        self._opening = SessionOpening(sessions, pool)

    async def create(self, request: httpbody_pb2.HttpBody, context: _Context) -> _Bodies:
        """POST /v1/sessions."""
        body = await self._bodies.read(request, session_bodies.CreateSessionBody)
        messages = body.messages or []
        if messages:
            check_messages(messages)
        session = await self._opening.open(
            caller_of(context),
            body.model or "",
            session_bodies.wanted(body),
            [message_of(each, index) for index, each in enumerate(messages)],
            _TTLS,
        )
        yield json_body(encode(session_bodies.shown(session)))

    async def get(self, request: openai_pb2.GetSessionObjectRequest, context: _Context) -> _Bodies:
        """GET /v1/sessions/{session_id}."""
        session = await self._sessions.get(caller_of(context).owner, request.session_id)
        yield json_body(encode(session_bodies.shown(session)))

    async def page(
        self, request: openai_pb2.ListSessionObjectsRequest, context: _Context
    ) -> _Bodies:
        """GET /v1/sessions."""
        check_page_size("limit", request.limit)
        owner, after = caller_of(context).owner, None
        if request.after:
            last = await self._sessions.get(owner, request.after)
            after = (last.create_time_s, last.session_id)
        page, end = await self._sessions.page(owner, request.limit, after)
        yield json_body(encode(session_bodies.shown_page(page, end is not None)))

    async def touch(
        self, request: openai_pb2.TouchSessionObjectRequest, context: _Context
    ) -> _Bodies:
        """POST /v1/sessions/{session_id}/touch."""
        owner = caller_of(context).owner
        await self._sessions.touch(owner, request.session_id)
        session = await self._sessions.get(owner, request.session_id)
        yield json_body(encode(session_bodies.shown(session)))

    async def delete(
        self, request: openai_pb2.DeleteSessionObjectRequest, context: _Context
    ) -> _Bodies:
        """DELETE /v1/sessions/{session_id}."""
        await self._sessions.delete(caller_of(context).owner, request.session_id)
        body = session_bodies.DeletedSessionBody(request.session_id, "session", True)
        yield json_body(encode(body))

    async def clear(self, request: httpbody_pb2.HttpBody, context: _Context) -> _Bodies:
        """POST /v1/kvcache/clear."""
        body = await self._bodies.read(request, session_bodies.ClearBody)
        session = await self._sessions.clear(
            caller_of(context).owner, session_bodies.session_of(body), bool(body.forget_history)
        )
        yield json_body(encode(session_bodies.shown(session)))
