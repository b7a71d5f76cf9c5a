"""Every way in which a request can fail.

ServiceError
├── InvalidArgumentError        a field has the wrong type, value or size
│   └── InvalidMediaError       an image or sound cannot be read or is beyond a limit
├── ContextLengthError          the prompt does not fit the model's context
├── RequestTooLargeError        the message or body is larger than the limit
├── UnauthenticatedError        no API key, or one that is not known
├── PermissionDeniedError       the key may not do this
├── ModelNotFoundError, SessionNotFoundError, GenerationNotFoundError, RouteNotFoundError
├── GenerationExpiredError      known, but its replay window has passed
├── GenerationConflictError     the generation id is in use, or was used with other content
├── SessionBusyError            the session has a turn running
├── FeaturesMissingError        the worker lacks tensors that the prompt names
├── OverloadedError             the waiting room is full
├── RateLimitedError            the key's limit is reached
├── UnavailableError            nothing that could do this is serving now
├── EngineDeadError             the engine stopped while the generation ran
├── DeadlineExceededError       the time limit passed before the answer
├── CancelledByPeerError        cancelled by the client or by a shutdown
├── UnimplementedError          in the contract, not in this build
└── InternalError               a fault of ours; the details are in the log only

What each looks like on every wire is in error_table.py.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from services.runtime.error_table import TABLE, Reason, Row

DOMAIN = "hotline.v1"
"""google.rpc.ErrorInfo.domain of every error."""

VALUE_LENGTH = 80
"""Characters of an offending value that a message repeats."""


class ServiceError(Exception):
    """A failure with a reason that a client may see. The message names field, value and limit."""

    reason: ClassVar[Reason] = Reason.INTERNAL

    def __init__(
        self,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        retry_delay_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.metadata = dict(metadata or {})
        self.retry_delay_s = retry_delay_s

    @property
    def row(self) -> Row:
        """What this error looks like on each wire."""
        return TABLE[self.reason]

    @property
    def field(self) -> str:
        """The request's field at fault, as a path such as `messages[1].content[0]`; or empty."""
        return self.metadata.get("field", "")


class InvalidArgumentError(ServiceError):
    """A field has the wrong type, value or size."""

    reason = Reason.INVALID_ARGUMENT

    def __init__(self, field: str, value: object, limit: str) -> None:
        try:
            shown = repr(value)
        except RecursionError:  # a parser in C goes deeper than repr does
            shown = "<deeply nested>"
        if len(shown) > VALUE_LENGTH:
            shown = shown[:VALUE_LENGTH] + "…"
        super().__init__(
            f"{field}: {shown} is not allowed; must be {limit}.",
            metadata={"field": field, "value": shown, "limit": limit},
        )


class InvalidMediaError(ServiceError):
    """An image or sound cannot be read or is beyond a limit."""

    reason = Reason.INVALID_MEDIA

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}.", metadata={"field": field})


class ContextLengthError(ServiceError):
    """The prompt does not fit the model's context."""

    reason = Reason.CONTEXT_LENGTH_EXCEEDED

    def __init__(self, prompt_tokens: int, context_tokens: int) -> None:
        super().__init__(
            f"messages: the prompt has {prompt_tokens} tokens, but this model's context is "
            f"{context_tokens} tokens, of which at least one is for the answer.",
            metadata={
                "field": "messages",
                "prompt_tokens": str(prompt_tokens),
                "context_tokens": str(context_tokens),
            },
        )


class RequestTooLargeError(ServiceError):
    """The message or body is larger than the limit."""

    reason = Reason.REQUEST_TOO_LARGE

    def __init__(self, field: str, size_bytes: int | None, limit_bytes: int) -> None:
        shown = "it is" if size_bytes is None else f"{size_bytes} bytes are"
        super().__init__(
            f"{field}: {shown} more than the limit of {limit_bytes} bytes.",
            metadata={"field": field, "limit_bytes": str(limit_bytes)},
        )


class UnauthenticatedError(ServiceError):
    """No API key, or one that is not known."""

    reason = Reason.UNAUTHENTICATED


class PermissionDeniedError(ServiceError):
    """The key may not do this."""

    reason = Reason.PERMISSION_DENIED


class ModelNotFoundError(ServiceError):
    """No model of this name."""

    reason = Reason.MODEL_NOT_FOUND

    def __init__(self, model: str) -> None:
        shown = model[:VALUE_LENGTH]
        super().__init__(
            f"model: {shown!r} is not served here; GET /v1/models or ModelService.ListModels "
            "lists what is.",
            metadata={"field": "model", "model": shown},
        )


class SessionNotFoundError(ServiceError):
    """No session with this id belongs to the caller."""

    reason = Reason.SESSION_NOT_FOUND


class GenerationNotFoundError(ServiceError):
    """No generation with this id belongs to the caller."""

    reason = Reason.GENERATION_NOT_FOUND


class GenerationExpiredError(ServiceError):
    """The generation is known, but its replay window has passed."""

    reason = Reason.GENERATION_EXPIRED


class GenerationConflictError(ServiceError):
    """The generation id is in use, or was used with other content."""

    reason = Reason.GENERATION_CONFLICT


class SessionBusyError(ServiceError):
    """The session has a turn running."""

    reason = Reason.SESSION_BUSY


class FeaturesMissingError(ServiceError):
    """The worker (or the tokenizer's store) lacks tensors that the prompt names."""

    reason = Reason.FEATURES_MISSING

    def __init__(self, digests: Sequence[bytes]) -> None:
        super().__init__(
            f"features: {len(digests)} feature tensors are not here; push them and ask again.",
            metadata={"field": "features", "digests": ",".join(d.hex() for d in digests)},
        )


class OverloadedError(ServiceError):
    """The waiting room is full."""

    reason = Reason.OVERLOADED


class RateLimitedError(ServiceError):
    """The key's rate or concurrency limit is reached."""

    reason = Reason.RATE_LIMITED


class UnavailableError(ServiceError):
    """No process that could do this is serving right now."""

    reason = Reason.UNAVAILABLE


class EngineDeadError(ServiceError):
    """The engine stopped while the generation ran."""

    reason = Reason.ENGINE_DEAD


class DeadlineExceededError(ServiceError):
    """The time limit passed before the answer."""

    reason = Reason.DEADLINE_EXCEEDED


class CancelledByPeerError(ServiceError):
    """Cancelled by the client or by a shutdown."""

    reason = Reason.CANCELLED


class UnimplementedError(ServiceError):
    """In the contract, not in this build."""

    reason = Reason.UNIMPLEMENTED

    def __init__(self, what: str, *, field: str = "") -> None:
        """`what`: a noun. `field`: the request's field that asks for it, if one does."""
        said = f"{what} is part of the contract, but this version does not build it yet."
        super().__init__(
            f"{field}: {said}" if field else said, metadata={"field": field} if field else None
        )


class InternalError(ServiceError):
    """A fault of ours. Never carries the cause's text: that goes to the log."""

    reason = Reason.INTERNAL

    def __init__(self) -> None:
        super().__init__("The server had an internal error; its log has it under the request id.")


class RouteNotFoundError(ServiceError):
    """No such REST route."""

    reason = Reason.ROUTE_NOT_FOUND


def error_class(reason: Reason) -> type[ServiceError]:
    """The class that stands for a reason."""
    return next(cls for cls in ServiceError.__subclasses__() if cls.reason is reason)


def rebuilt(
    reason: Reason, message: str, metadata: Mapping[str, str], retry_delay_s: float | None
) -> ServiceError:
    """The error that a peer raised, from what travelled of it."""
    cls = error_class(reason)
    error = cls.__new__(cls)  # a subclass's own arguments did not travel
    ServiceError.__init__(error, message, metadata=metadata, retry_delay_s=retry_delay_s)
    return error
