"""What each RPC of OpenAIService takes, answers, and fails with, for the OpenAPI document."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from services.gateway import openapi_schemas as schemas
from services.gateway.completion_response import TextCompletion
from services.gateway.generation_routes import CancelledBody
from services.gateway.openai_models import HealthBody, ModelBody, ModelListBody
from services.gateway.openai_response import Answer, Chunk
from services.gateway.openapi_sessions import CLEAR_REQUEST, SESSION_REQUEST
from services.gateway.plain_text_request import DetokenizeAnswer, TokenizeAnswer
from services.gateway.session_bodies import DeletedSessionBody, SessionBody, SessionListBody
from services.runtime.error_table import Reason

_ANY = frozenset({Reason.INTERNAL, Reason.CANCELLED, Reason.DEADLINE_EXCEEDED, Reason.UNAVAILABLE})
_KEYED = _ANY | {Reason.UNAUTHENTICATED, Reason.PERMISSION_DENIED}
_TEXT = _KEYED | {
    Reason.INVALID_ARGUMENT,
    Reason.REQUEST_TOO_LARGE,
    Reason.MODEL_NOT_FOUND,
    Reason.OVERLOADED,
    Reason.RATE_LIMITED,
}
_SESSION = _KEYED | {Reason.INVALID_ARGUMENT, Reason.SESSION_NOT_FOUND}
_GENERATION = _TEXT | {
    Reason.CONTEXT_LENGTH_EXCEEDED,
    Reason.ENGINE_DEAD,
    Reason.GENERATION_CONFLICT,
    Reason.SESSION_BUSY,
    Reason.SESSION_NOT_FOUND,
    Reason.FEATURES_MISSING,
    Reason.INVALID_MEDIA,
    Reason.UNIMPLEMENTED,
}


@dataclass(frozen=True)
class Operation:
    """One RPC."""

    summary: str
    reasons: frozenset[Reason]
    """How it may fail."""
    request: str = ""
    """The name of its body's schema; empty: no body."""
    answer: type[msgspec.Struct] | None = None
    """None: an object of no particular form, or none at all."""
    event: type[msgspec.Struct] | None = None
    """The data of one server-sent event, where it can stream."""
    needs_key: bool = True
    is_built: bool = True
    examples: Mapping[str, Any] = field(default_factory=dict)
    """Bodies that a server of any model accepts."""


_CHAT = {"messages": [{"role": "user", "content": "Open the settings."}], "max_tokens": 16}
_PROMPT = {"prompt": "Open the settings.", "max_tokens": 16}
_STREAM = {"stream": True, "stream_options": {"include_usage": True}}

OPERATIONS: Mapping[str, Operation] = {
    "CreateChatCompletion": Operation(
        "Go on with a conversation.",
        _GENERATION,
        schemas.CHAT_REQUEST,
        Answer,
        Chunk,
        examples={"whole": _CHAT, "streamed": _CHAT | _STREAM},
    ),
    "CreateCompletion": Operation(
        "Go on with one or several prompts, without a template.",
        _GENERATION,
        schemas.COMPLETION_REQUEST,
        TextCompletion,
        TextCompletion,
        examples={
            "a text": _PROMPT,
            "streamed": _PROMPT | _STREAM,
            "several, as token ids": _PROMPT | {"prompt": [[1, 2], [3]]},
        },
    ),
    "ListOpenAIModels": Operation("Models and their aliases.", _KEYED, answer=ModelListBody),
    "GetOpenAIModel": Operation(
        "One model, by name or alias; a name may hold slashes.",
        _KEYED | {Reason.MODEL_NOT_FOUND},
        answer=ModelBody,
    ),
    "GetHealth": Operation(
        "Whether generations can run (`/health`, `/health/ready`), or the process answers (`/health/live`).",
        _ANY | {Reason.ROUTE_NOT_FOUND},
        answer=HealthBody,
        needs_key=False,
    ),
    "CreateTokenization": Operation(
        "The token ids of a text or a conversation.",
        _TEXT | {Reason.INVALID_MEDIA, Reason.UNIMPLEMENTED},
        schemas.TOKENIZE_REQUEST,
        TokenizeAnswer,
        examples={
            "a text": {"prompt": "Open the settings."},
            "a conversation": {"messages": _CHAT["messages"]},
        },
    ),
    "CreateDetokenization": Operation(
        "The text of token ids.",
        _TEXT,
        schemas.DETOKENIZE_REQUEST,
        DetokenizeAnswer,
        examples={"ids": {"tokens": [1, 2, 3]}},
    ),
    "GetOpenAPIDocument": Operation("This document.", _KEYED),
    "StreamGenerationEvents": Operation(
        "Resume a stream: the chunks that followed `after`, each with its number as its `id`. The header `Last-Event-ID` "
        "goes over `after`.",
        _KEYED | {Reason.INVALID_ARGUMENT, Reason.GENERATION_NOT_FOUND, Reason.GENERATION_EXPIRED},
        event=Chunk,
    ),
    "CancelGeneration": Operation(
        "Cancel a generation, by its id or that of its answer.",
        _KEYED | {Reason.INVALID_ARGUMENT},
        answer=CancelledBody,
    ),
    "CreateSessionObject": Operation(
        "Open a session: a conversation that the server keeps.",
        _TEXT | {Reason.INVALID_MEDIA},
        SESSION_REQUEST,
        SessionBody,
        examples={
            "as configured": {},
            "of an hour": {"ttl_seconds": 3600, "cache_scope": "session"},
        },
    ),
    "ListSessionObjects": Operation(
        "The caller's sessions, newest first.", _SESSION, answer=SessionListBody
    ),
    "GetSessionObject": Operation("One session.", _SESSION, answer=SessionBody),
    "DeleteSessionObject": Operation(
        "Forget a session, if it is there.", _SESSION, answer=DeletedSessionBody
    ),
    "TouchSessionObject": Operation(
        "Begin a session's idle time to live again.", _SESSION, answer=SessionBody
    ),
    "ClearKeyValueCache": Operation(
        "Make a session's KV cache unreachable, and forget its history where asked.",
        _SESSION | {Reason.REQUEST_TOO_LARGE, Reason.OVERLOADED, Reason.SESSION_BUSY},
        CLEAR_REQUEST,
        SessionBody,
    ),
}
"""By the RPC's name."""
