"""When a call must have ended."""

import time
from typing import Any

from grpc import aio


def deadline_of(context: "aio.ServicerContext[Any, Any]", limit_s: float) -> float:
    """The call's own deadline, at most `limit_s` from now, on the gateway's monotonic clock."""
    return time.monotonic() + remaining_s(context, limit_s)


def remaining_s(context: "aio.ServicerContext[Any, Any]", limit_s: float) -> float:
    """Seconds that the call may still take, at most `limit_s`."""
    left_s = context.time_remaining()
    return limit_s if left_s is None else min(left_s, limit_s)
