"""ServiceError on the gRPC wire: google.rpc.Status with ErrorInfo and RetryInfo (AIP-193), both ways."""

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2

from services.runtime.channel import MAX_MESSAGE_BYTES
from services.runtime.error_table import Reason
from services.runtime.errors import (
    DOMAIN,
    DeadlineExceededError,
    InternalError,
    RequestTooLargeError,
    ServiceError,
    UnavailableError,
    rebuilt,
)

DETAILS_KEY = "grpc-status-details-bin"
MESSAGE_BYTES = 1024
"""Longest status message; trailing metadata is limited to 8 KiB by most peers."""


def grpc_code(error: ServiceError) -> grpc.StatusCode:
    """The status code of an error."""
    return grpc.StatusCode[error.row.grpc_code]


def details(error: ServiceError) -> bytes:
    """The serialised google.rpc.Status of an error."""
    info = error_details_pb2.ErrorInfo(
        reason=error.reason.value,
        domain=DOMAIN,
        metadata={key: value[:MESSAGE_BYTES] for key, value in error.metadata.items()},
    )
    packed = [any_pb2.Any()]
    packed[0].Pack(info)
    if error.retry_delay_s is not None:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(round(error.retry_delay_s * 1000))
        packed.append(any_pb2.Any())
        packed[1].Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    code: int = grpc_code(error).value[0]
    status: bytes = status_pb2.Status(
        code=code, message=error.message[:MESSAGE_BYTES], details=packed
    ).SerializeToString()
    return status


def from_rpc_error(error: grpc.aio.AioRpcError, peer: str) -> ServiceError:
    """The ServiceError that a peer of ours raised, or the one that its silence amounts to.

    Args:
        error: what the call raised.
        peer: the peer's configured name, for messages.
    """
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS_KEY and isinstance(value, bytes):
            return _from_details(value)
    code = error.code()
    if code is grpc.StatusCode.UNAVAILABLE:
        return UnavailableError(f"{peer} does not answer.", retry_delay_s=1.0)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceededError(f"{peer} did not answer in time.")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return RequestTooLargeError("message", None, MAX_MESSAGE_BYTES)
    return InternalError()


def _from_details(value: bytes) -> ServiceError:
    status = status_pb2.Status.FromString(value)
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    for detail in status.details:
        if detail.Is(info.DESCRIPTOR):
            detail.Unpack(info)
        elif detail.Is(retry.DESCRIPTOR):
            detail.Unpack(retry)
    if info.domain != DOMAIN or info.reason not in Reason.__members__:
        return InternalError()
    delay = retry.retry_delay.ToMilliseconds() / 1000 if retry.HasField("retry_delay") else None
    return rebuilt(Reason[info.reason], status.message, dict(info.metadata), delay)
