"""JSON Schemas of the bodies of the session routes."""

from collections.abc import Callable
from typing import Any

from services.gateway.session_wire import MAX_HISTORY_TOKENS
from services.gateway.sessions.sessions import MAX_IMAGES_KEPT
from services.gateway.sessions.settings import LEAST_TTL_S

SESSION_REQUEST, CLEAR_REQUEST = "SessionRequest", "ClearKeyValueCacheRequest"
_Schema = dict[str, Any]


def session_requests(
    described: Callable[..., _Schema], messages: _Schema, model: _Schema
) -> dict[str, _Schema]:
    """By name.

    Args:
        described: makes an object from a description, the names of what it must have, and its properties.
    """
    return {
        SESSION_REQUEST: described(
            "A session to open.",
            [],
            model=model,
            ttl_seconds=_ttl("How long it may lie idle."),
            absolute_ttl_seconds=_ttl("How long it may live at all."),
            cache_scope={
                "enum": ["owner", "session", None],
                "description": "Whom it shares its prefix cache with. Default: owner.",
            },
            history={
                "type": ["object", "null"],
                "description": "How much of the past stays in the prompt.",
                "properties": {
                    "max_history_tokens": _count(
                        MAX_HISTORY_TOKENS, "Longer ones lose whole turns. 0: the model's context."
                    ),
                    "images": {"enum": ["none", "last", "all", None]},
                    "image_count": _count(MAX_IMAGES_KEPT, "With `last`: how many. Default: 1."),
                },
            },
            messages=messages | {"type": ["array", "null"], "minItems": 0},
        ),
        CLEAR_REQUEST: described(
            "A session to clear.",
            ["session_id"],
            session_id={"type": "string", "pattern": "^[0-9a-f]{32}$"},
            forget_history={
                "type": ["boolean", "null"],
                "description": "true: messages and images go too. Default: false.",
            },
        ),
    }


def _ttl(description: str) -> _Schema:
    return {
        "type": ["number", "null"],
        "minimum": LEAST_TTL_S,
        "description": f"{description} In seconds; the most is configured.",
    }


def _count(most: int, description: str) -> _Schema:
    return {
        "type": ["integer", "null"],
        "minimum": 0,
        "maximum": most,
        "description": description,
    }
