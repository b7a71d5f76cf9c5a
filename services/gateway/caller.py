"""Who is asking, and what that caller may take: the owner of generations, sessions and cache entries."""

import math
from dataclasses import dataclass

ANONYMOUS = "anonymous"


@dataclass(frozen=True)
class Limits:
    """What one API key may take. The defaults limit nothing."""

    max_concurrent: float = math.inf
    """Generations at once, those that wait included."""
    tokens_per_minute: float = math.inf
    """Refill of the token bucket: prompt, images and max_tokens; what was not sampled is given back."""
    burst_tokens: float = math.inf
    """Size of the bucket."""
    requests_per_minute: float = math.inf
    """Refill of the bucket of requests, whose size is the same."""
    first_priority: int = -100
    """The most urgent priority that a request may ask for; -100 is first of all."""
    weight: float = 1.0
    """Share of the queue beside other keys that wait, above 0."""


@dataclass(frozen=True)
class Caller:
    """A caller, as the interceptor found it."""

    owner: str = ANONYMOUS
    """Names whose generations, sessions and cache entries these are; a key is the owner of what it makes."""
    limits: Limits = Limits()
    key_id: str = ""
    """The public id of its API key, for limits and logs; empty: none."""
    models: frozenset[str] | None = None
    """Names of models that it may use, canonical or aliases; None: all. Others do not exist for it."""
