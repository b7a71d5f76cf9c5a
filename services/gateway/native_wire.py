"""The fields of GenerateRequest that only native clients have."""

from hotline.v1 import inference_pb2

from services.runtime.errors import InvalidArgumentError

MAX_KEEP_S = 600
MIN_HEARTBEAT_MS, MAX_HEARTBEAT_MS = 1_000, 60_000
MAX_QUALITY_BYTES = 32


def check_native_fields(request: inference_pb2.GenerateRequest) -> None:
    """Raises InvalidArgumentError for a value that the contract does not allow, also where this version ignores it."""
    if request.HasField("disconnect"):
        _check_disconnect(request.disconnect)
    if request.session_busy not in inference_pb2.SessionBusyPolicy.values():
        raise InvalidArgumentError(
            "session_busy", request.session_busy, "a value of SessionBusyPolicy"
        )
    heartbeat_s(request)
    size = len(request.quality.encode())
    if size > MAX_QUALITY_BYTES:
        raise InvalidArgumentError("quality", request.quality, f"at most {MAX_QUALITY_BYTES} bytes")


def heartbeat_s(request: inference_pb2.GenerateRequest | inference_pb2.ResumeRequest) -> float:
    """Seconds of silence before a heartbeat; 0: none. Raises InvalidArgumentError."""
    interval_ms = request.heartbeat_interval_ms
    if interval_ms and not MIN_HEARTBEAT_MS <= interval_ms <= MAX_HEARTBEAT_MS:
        limit = f"0, or {MIN_HEARTBEAT_MS} to {MAX_HEARTBEAT_MS}"
        raise InvalidArgumentError("heartbeat_interval_ms", interval_ms, limit)
    return interval_ms / 1000


def _check_disconnect(policy: inference_pb2.DisconnectPolicy) -> None:
    kind = policy.WhichOneof("policy")
    if kind is None:
        raise InvalidArgumentError("disconnect", "nothing", "cancel or keep_s")
    if kind == "cancel" and not policy.cancel:
        raise InvalidArgumentError("disconnect.cancel", False, "true where it is set")
    if kind == "keep_s" and not 1 <= policy.keep_s <= MAX_KEEP_S:
        raise InvalidArgumentError("disconnect.keep_s", policy.keep_s, f"1 to {MAX_KEEP_S}")
