"""The JSON of the session routes."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from services.gateway.openai_request import ChatMessage
from services.gateway.session_wire import policy
from services.gateway.sessions.record import CacheScope, ImageRetention, Session
from services.gateway.sessions.sessions import Wanted
from services.runtime.errors import InvalidArgumentError


class HistoryBody(msgspec.Struct):
    """How much of the past stays in the prompt."""

    max_history_tokens: int | None = None
    images: Literal["none", "last", "all"] | None = None
    image_count: int | None = None


class CreateSessionBody(msgspec.Struct):
    """POST /v1/sessions; null counts as absent, unknown fields are accepted."""

    model: str | None = None
    ttl_seconds: float | None = None
    absolute_ttl_seconds: float | None = None
    cache_scope: Literal["owner", "session"] | None = None
    history: HistoryBody | None = None
    messages: list[ChatMessage] | None = None


class ClearBody(msgspec.Struct):
    """POST /v1/kvcache/clear."""

    session_id: str | None = None
    forget_history: bool | None = None


class ShownHistory(msgspec.Struct):
    """HistoryBody, complete."""

    max_history_tokens: int
    images: str
    image_count: int


class SessionBody(msgspec.Struct):
    """A session."""

    id: str
    object: str
    model: str
    created: int
    expires_at: int
    """Unix time, in whole seconds: it lives at least until then."""
    ttl_seconds: float
    absolute_ttl_seconds: float
    cache_scope: str
    turn_count: int
    history_tokens: int
    history: ShownHistory


class SessionListBody(msgspec.Struct):
    """A page of sessions."""

    object: str
    data: list[SessionBody]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedSessionBody(msgspec.Struct):
    """DELETE /v1/sessions/{id}."""

    id: str
    object: str
    deleted: bool


def wanted(body: CreateSessionBody) -> Wanted:
    """How the session is to be. Raises InvalidArgumentError."""
    history = body.history or HistoryBody()
    return Wanted(
        body.ttl_seconds,
        body.absolute_ttl_seconds,
        CacheScope((body.cache_scope or "owner").upper()),
        policy(
            history.max_history_tokens or 0,
            ImageRetention((history.images or "last").upper()),
            history.image_count or 0,
        ),
    )


def session_of(body: ClearBody) -> str:
    """Which session to clear. Raises InvalidArgumentError."""
    if not body.session_id:
        raise InvalidArgumentError("session_id", body.session_id, "the id of a session")
    return body.session_id


def shown(session: Session) -> SessionBody:
    """A session as its owner sees it."""
    policy = session.policy
    return SessionBody(
        session.session_id.hex(),
        "session",
        session.model,
        int(session.create_time_s),
        int(session.expire_time_s),
        session.idle_ttl_s,
        session.absolute_ttl_s,
        session.cache_scope.value.lower(),
        session.turn_count,
        session.history_tokens,
        ShownHistory(policy.max_history_tokens, policy.images.value.lower(), policy.image_count),
    )


def shown_page(page: Sequence[Session], has_more: bool) -> SessionListBody:
    """A page of them."""
    data = [shown(session) for session in page]
    first, last = (data[0].id, data[-1].id) if data else (None, None)
    return SessionListBody("list", data, first, last, has_more)
