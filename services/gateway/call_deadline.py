"""When a call must have ended: by gRPC's own deadline, or by a header of a REST call."""

import re
import time
from typing import Any, TypeAlias

from grpc import aio

from services.runtime.errors import InvalidArgumentError

TIMEOUT_KEY = "x-request-timeout"
"""Seconds, of a REST call; fractions are allowed."""
MOST_S = 3600.0
_NUMBER = re.compile(r"[0-9]{1,4}(\.[0-9]{1,6})?")
_Context: TypeAlias = "aio.ServicerContext[Any, Any]"


def deadline_of(context: _Context, limit_s: float) -> float:
    """The call's own deadline, at most `limit_s` from now, on the gateway's monotonic clock."""
    return time.monotonic() + remaining_s(context, limit_s)


def remaining_s(context: _Context, limit_s: float) -> float:
    """Seconds that the call may still take, at most `limit_s`. Raises InvalidArgumentError naming the header."""
    left_s = context.time_remaining()
    if left_s is not None:
        limit_s = min(left_s, limit_s)
    for key, value in context.invocation_metadata() or ():
        if key == TIMEOUT_KEY:
            limit_s = min(_seconds(str(value)), limit_s)
    return limit_s


def _seconds(said: str) -> float:
    seconds = float(said) if _NUMBER.fullmatch(said) else 0.0
    if not 0 < seconds <= MOST_S:
        raise InvalidArgumentError(
            TIMEOUT_KEY, said, f"a number of seconds above 0 and up to {MOST_S:g}"
        )
    return seconds
