"""The ranges of sampling parameters, as hotline.v1.SamplingParameters promises them.

The gateway checks them before it does anything for a request; the worker checks them again before its engine, because it
trusts nobody.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """An interval; `open_low`: its lower bound does not belong to it."""

    low: float
    high: float
    open_low: bool = False

    def holds(self, value: float) -> bool:
        """Whether a value lies inside; NaN, which compares with nothing, never does, nor do infinities."""
        finite = isinstance(value, int) or math.isfinite(value)  # isfinite fails on huge integers
        above = value > self.low if self.open_low else value >= self.low
        return finite and above and value <= self.high

    def __str__(self) -> str:
        if math.isinf(self.high):
            return f"at least {self.low}"
        if self.open_low:
            return f"above {self.low} and at most {self.high}"
        return f"from {self.low} to {self.high}"


SAMPLING_RANGES: Mapping[str, Range] = {
    "temperature": Range(0, 2),
    "top_p": Range(0, 1, open_low=True),
    "top_k": Range(-1, 2**31 - 1),
    "min_p": Range(0, 1),
    "presence_penalty": Range(-2, 2),
    "frequency_penalty": Range(-2, 2),
    "repetition_penalty": Range(0, 2, open_low=True),
    "seed": Range(-(2**63), 2**63 - 1),
    "max_tokens": Range(1, math.inf),
    "min_tokens": Range(0, math.inf),
    "logprobs": Range(0, 20),
    "n": Range(1, 16),
}
"""Every number among the fields, by name. What depends on a model (the vocabulary, the room left) only the worker knows."""

PRIORITIES = Range(-100, 100)
LOGIT_BIASES = Range(-100, 100)
MAX_LOGIT_BIASES = 1024
MAX_STOPS, MAX_STOP_BYTES = 16, 256
MAX_STOP_TOKENS = 64
