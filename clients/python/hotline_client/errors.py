"""What a call can end with."""

from collections.abc import Mapping
from typing import Final

import grpc
from google.rpc import error_details_pb2, status_pb2
from hotline.v1 import error_pb2, generation_pb2

DOMAIN: Final = "hotline.v1"
_DETAILS_KEY: Final = "grpc-status-details-bin"

UNREACHABLE: Final = "UNREACHABLE"
"""Reason of an error that no service of ours told: the network, or nobody listens."""

RETRYABLE: Final = frozenset(
    {UNREACHABLE, "UNAVAILABLE", "OVERLOADED", "RATE_LIMITED", "ENGINE_DEAD"}
)
"""Reasons after which the same request may succeed a little later; with a generation id of the client's own it is safe to
send again."""


class HotlineError(Exception):
    """A request failed.

    Attributes:
        reason: a name of hotline.v1.ErrorReason without its prefix, such as SESSION_NOT_FOUND; or UNREACHABLE.
        message: for people.
        field: the request's field at fault, or empty.
        retryable: the same request may succeed if sent again.
        retry_delay_s: how long the server says to wait before that; None: no advice.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        retryable: bool | None = None,
        retry_delay_s: float | None = None,
    ) -> None:
        super().__init__(f"{message} [{reason}]")
        self.reason, self.message = reason, message
        self.field = (metadata or {}).get("field", "")
        self.retryable = reason in RETRYABLE if retryable is None else retryable
        self.retry_delay_s = retry_delay_s


def from_rpc(error: grpc.aio.AioRpcError) -> HotlineError:
    """What a failed call tells."""
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            told = _told(value)
            if told is not None:
                return told
    code = error.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return HotlineError("DEADLINE_EXCEEDED", "No answer came within the deadline.")
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL):
        # Not in the server's words: proxies and broken connections make all three of them.
        return HotlineError(UNREACHABLE, "The server does not answer.")
    return HotlineError(code.name, error.details() or code.name)


def _told(value: bytes) -> HotlineError | None:
    status = status_pb2.Status.FromString(value)
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    for detail in status.details:
        if detail.Is(info.DESCRIPTOR):
            detail.Unpack(info)
        elif detail.Is(retry.DESCRIPTOR):
            detail.Unpack(retry)
    if info.domain != DOMAIN:
        return None
    delay_s = retry.retry_delay.ToMilliseconds() / 1000 if retry.HasField("retry_delay") else None
    return HotlineError(
        info.reason, status.message, metadata=dict(info.metadata), retry_delay_s=delay_s
    )


def from_failed(event: generation_pb2.FailedEvent) -> HotlineError:
    """What a generation that had begun failed with."""
    reason = error_pb2.ErrorReason.Name(event.reason).removeprefix("ERROR_REASON_")
    delay_s = event.retry_delay.ToMilliseconds() / 1000 if event.HasField("retry_delay") else None
    return HotlineError(reason, event.message, retryable=event.retryable, retry_delay_s=delay_s)
