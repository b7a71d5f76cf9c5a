"""`x-ratelimit-*`, as OpenAI's service sends them: what is left of a key's limits, and when all of it is back."""

import math

from services.gateway.call_headers import Headers
from services.gateway.key_allowance import KeyAllowance


def rate_limit_headers(allowance: KeyAllowance) -> Headers:
    """The headers of the limits that the key has."""
    requests, tokens = allowance.levels()
    return [
        header
        for name, level in (("requests", requests), ("tokens", tokens))
        if level is not None
        for header in (
            (f"x-ratelimit-limit-{name}", str(level.limit)),
            (f"x-ratelimit-remaining-{name}", str(level.remaining)),
            (f"x-ratelimit-reset-{name}", duration(level.reset_s)),
        )
    ]


def duration(seconds: float) -> str:
    """Such as `0s`, `20ms`, `1.5s`, `6m0s`, `1h0m30s`; never shorter than it is."""
    if seconds < 1:
        milliseconds = math.ceil(seconds * 1000)
        return f"{milliseconds}ms" if 0 < milliseconds < 1000 else f"{milliseconds // 1000}s"
    if seconds < 60:
        tenths = math.ceil(seconds * 10)
        if tenths < 600:
            return f"{tenths / 10:g}s"
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{rest}s" if hours else f"{minutes}m{rest}s"
