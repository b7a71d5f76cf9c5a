"""The one table of failures: what each reason looks like on every wire. docs/errors.md is written from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Reason(StrEnum):
    """The names of hotline.v1.ErrorReason, without the prefix."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    INVALID_MEDIA = "INVALID_MEDIA"
    CONTEXT_LENGTH_EXCEEDED = "CONTEXT_LENGTH_EXCEEDED"
    REQUEST_TOO_LARGE = "REQUEST_TOO_LARGE"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    MODEL_NOT_FOUND = "MODEL_NOT_FOUND"
    SESSION_NOT_FOUND = "SESSION_NOT_FOUND"
    GENERATION_NOT_FOUND = "GENERATION_NOT_FOUND"
    GENERATION_EXPIRED = "GENERATION_EXPIRED"
    GENERATION_CONFLICT = "GENERATION_CONFLICT"
    SESSION_BUSY = "SESSION_BUSY"
    FEATURES_MISSING = "FEATURES_MISSING"
    OVERLOADED = "OVERLOADED"
    RATE_LIMITED = "RATE_LIMITED"
    UNAVAILABLE = "UNAVAILABLE"
    ENGINE_DEAD = "ENGINE_DEAD"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    CANCELLED = "CANCELLED"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    INTERNAL = "INTERNAL"
    ROUTE_NOT_FOUND = "ROUTE_NOT_FOUND"


@dataclass(frozen=True)
class Row:
    """How one reason looks on each wire."""

    grpc_code: str
    """Name of the grpc.StatusCode."""
    http_status: int
    """Status of a REST answer whose first byte has not been sent."""
    openai_type: str
    """error.type of the OpenAI error object."""
    openai_code: str
    """error.code of the OpenAI error object."""
    retryable: bool
    """Whether the same request may succeed if sent again."""


_BAD, _GONE, _BUSY = "invalid_request_error", "not_found_error", "service_unavailable_error"

TABLE: Mapping[Reason, Row] = MappingProxyType(
    {
        Reason.INVALID_ARGUMENT: Row("INVALID_ARGUMENT", 400, _BAD, "invalid_value", False),
        Reason.INVALID_MEDIA: Row("INVALID_ARGUMENT", 400, _BAD, "invalid_image", False),
        Reason.CONTEXT_LENGTH_EXCEEDED: Row(
            "INVALID_ARGUMENT", 400, _BAD, "context_length_exceeded", False
        ),
        Reason.REQUEST_TOO_LARGE: Row("RESOURCE_EXHAUSTED", 413, _BAD, "request_too_large", False),
        Reason.UNAUTHENTICATED: Row(
            "UNAUTHENTICATED", 401, "authentication_error", "invalid_api_key", False
        ),
        Reason.PERMISSION_DENIED: Row(
            "PERMISSION_DENIED", 403, "permission_error", "permission_denied", False
        ),
        Reason.MODEL_NOT_FOUND: Row("NOT_FOUND", 404, _BAD, "model_not_found", False),
        Reason.SESSION_NOT_FOUND: Row("NOT_FOUND", 404, _GONE, "session_not_found", False),
        Reason.GENERATION_NOT_FOUND: Row("NOT_FOUND", 404, _GONE, "generation_not_found", False),
        Reason.GENERATION_EXPIRED: Row("OUT_OF_RANGE", 410, _GONE, "generation_expired", False),
        Reason.GENERATION_CONFLICT: Row(
            "ALREADY_EXISTS", 409, "conflict_error", "generation_conflict", False
        ),
        Reason.SESSION_BUSY: Row(
            "FAILED_PRECONDITION", 409, "conflict_error", "session_busy", True
        ),
        Reason.FEATURES_MISSING: Row(
            "FAILED_PRECONDITION", 409, "conflict_error", "features_missing", True
        ),
        Reason.OVERLOADED: Row("RESOURCE_EXHAUSTED", 429, "rate_limit_error", "overloaded", True),
        Reason.RATE_LIMITED: Row(
            "RESOURCE_EXHAUSTED", 429, "rate_limit_error", "rate_limit_exceeded", True
        ),
        Reason.UNAVAILABLE: Row("UNAVAILABLE", 503, _BUSY, "unavailable", True),
        Reason.ENGINE_DEAD: Row("UNAVAILABLE", 503, _BUSY, "engine_dead", True),
        Reason.DEADLINE_EXCEEDED: Row("DEADLINE_EXCEEDED", 504, "timeout_error", "timeout", True),
        Reason.CANCELLED: Row("CANCELLED", 499, _BAD, "cancelled", False),
        Reason.UNIMPLEMENTED: Row("UNIMPLEMENTED", 501, _BAD, "unimplemented", False),
        Reason.INTERNAL: Row("INTERNAL", 500, "server_error", "internal_error", False),
        Reason.ROUTE_NOT_FOUND: Row("UNIMPLEMENTED", 404, _BAD, "unknown_url", False),
    }
)
