"""Sessions: hotline.v1 <-> the gateway's own types."""

import base64
import binascii
import math
import struct
from collections.abc import Sequence
from typing import TypeVar

from google.protobuf import duration_pb2, timestamp_pb2
from hotline.v1 import session_pb2

from services.gateway.sessions.record import CacheScope, HistoryPolicy, ImageRetention, Session
from services.gateway.sessions.sessions import MAX_IMAGES_KEPT, MAX_PAGE, Wanted
from services.gateway.sessions.store import PageEnd
from services.runtime.errors import InvalidArgumentError

MAX_HISTORY_TOKENS = 2**24
_PAGE_END = struct.Struct(">d16s")
_Word = TypeVar("_Word", CacheScope, ImageRetention)


def wanted(request: session_pb2.CreateSessionRequest) -> Wanted:
    """How the session is to be. Raises InvalidArgumentError."""
    return Wanted(
        _seconds("idle_ttl", request.idle_ttl) if request.HasField("idle_ttl") else None,
        _seconds("absolute_ttl", request.absolute_ttl)
        if request.HasField("absolute_ttl")
        else None,
        _word(
            "cache_scope",
            request.cache_scope,
            session_pb2.CacheScope.items(),
            CacheScope.OWNER,
        ),
        _policy(request.history),
    )


def _policy(message: session_pb2.HistoryPolicy) -> HistoryPolicy:
    images = _word(
        "history.images",
        message.images,
        session_pb2.ImageRetention.items(),
        ImageRetention.LAST,
    )
    return policy(message.max_history_tokens, images, message.image_count)


def policy(max_history_tokens: int, images: ImageRetention, image_count: int) -> HistoryPolicy:
    """A history policy in numbers. Raises InvalidArgumentError."""
    if not 0 <= max_history_tokens <= MAX_HISTORY_TOKENS:
        limit = f"0 to {MAX_HISTORY_TOKENS}"
        raise InvalidArgumentError("history.max_history_tokens", max_history_tokens, limit)
    if not 0 <= image_count <= MAX_IMAGES_KEPT:
        raise InvalidArgumentError("history.image_count", image_count, f"0 to {MAX_IMAGES_KEPT}")
    return HistoryPolicy(max_history_tokens, images, image_count or 1)


def _word(field: str, number: int, items: Sequence[tuple[str, int]], default: _Word) -> _Word:
    """A value of an enumeration whose names end in ours; 0 is the default."""
    if not number:
        return default
    for name, value in items:
        if value == number:
            return type(default)(name.rpartition("_")[2])
    names = ", ".join(name for name, value in items if value)
    raise InvalidArgumentError(field, number, f"one of {names}")


def _seconds(field: str, duration: duration_pb2.Duration) -> float:
    seconds = duration.seconds + duration.nanos / 1e9
    if not math.isfinite(seconds):
        raise InvalidArgumentError(field, seconds, "a number of seconds")
    return seconds


def session(kept: Session) -> session_pb2.Session:
    """A session as its owner sees it."""
    return session_pb2.Session(
        session_id=kept.session_id.hex(),
        model=kept.model,
        create_time=timestamp(kept.create_time_s),
        expire_time=timestamp(kept.expire_time_s),
        idle_ttl=_duration(kept.idle_ttl_s),
        absolute_ttl=_duration(kept.absolute_ttl_s),
        cache_scope=session_pb2.CacheScope.Value(f"CACHE_SCOPE_{kept.cache_scope.value}"),
        history=session_pb2.HistoryPolicy(
            max_history_tokens=kept.policy.max_history_tokens,
            images=session_pb2.ImageRetention.Value(f"IMAGE_RETENTION_{kept.policy.images.value}"),
            image_count=kept.policy.image_count,
        ),
        turn_count=kept.turn_count,
        history_tokens=kept.history_tokens,
    )


def timestamp(seconds: float) -> timestamp_pb2.Timestamp:
    """A Unix time, in milliseconds."""
    message = timestamp_pb2.Timestamp()
    message.FromMilliseconds(round(seconds * 1000))
    return message


def _duration(seconds: float) -> duration_pb2.Duration:
    message = duration_pb2.Duration()
    message.FromMilliseconds(round(seconds * 1000))
    return message


def check_page_size(field: str, size: int) -> None:
    """Raises InvalidArgumentError."""
    if size > MAX_PAGE:
        raise InvalidArgumentError(field, size, f"0 to {MAX_PAGE}")


def page_token(end: PageEnd | None) -> str:
    """Where the next page begins; empty: there is none."""
    return "" if end is None else base64.urlsafe_b64encode(_PAGE_END.pack(*end)).decode()


def page_end(token: str) -> PageEnd | None:
    """What a page token says. Raises InvalidArgumentError for one that is none of ours."""
    if not token:
        return None
    try:
        created_s, session_id = _PAGE_END.unpack(base64.urlsafe_b64decode(token))
    except (ValueError, binascii.Error, struct.error):
        created_s, session_id = math.nan, b""
    if not math.isfinite(created_s):
        raise InvalidArgumentError("page_token", token, "what the page before gave")
    return created_s, session_id
