"""The ranges of sampling parameters, checked before anything else is done for a request.

The worker checks again before its engine: it trusts nobody. Here the error names the field as the client wrote it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.runtime.errors import InvalidArgumentError

MAX_CHOICES = 16
MAX_STOPS, MAX_STOP_BYTES = 16, 256
MAX_STOP_TOKENS = 64
MAX_LOGIT_BIASES, LOGIT_BIAS_BOUND = 1024, 100.0


@dataclass(frozen=True)
class Range:
    """An interval; `open_low`: its lower bound does not belong to it."""

    low: float
    high: float
    open_low: bool = False

    def holds(self, value: float) -> bool:
        """Whether a finite value lies inside."""
        above = value > self.low if self.open_low else value >= self.low
        finite = isinstance(value, int) or math.isfinite(value)  # isfinite fails on huge integers
        return finite and above and value <= self.high

    def __str__(self) -> str:
        if math.isinf(self.high):
            return f"at least {self.low:g}"
        return f"{'above' if self.open_low else 'from'} {self.low:g} to {self.high:g}"


RANGES: Mapping[str, Range] = {
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
    "n": Range(1, MAX_CHOICES),
}
"""By the name in hotline.v1.SamplingParameters."""

PRIORITIES = Range(-100, 100)


def check_ranges(
    values: Mapping[str, float], names: Mapping[str, str] | None = None, prefix: str = ""
) -> None:
    """Raises InvalidArgumentError for the first value out of its range.

    Args:
        values: parameter name -> value, absent ones left out.
        names: parameter name -> what the client calls it, where that differs.
        prefix: put before the name, such as `sampling.`.
    """
    for name, value in values.items():
        allowed = RANGES.get(name)
        if allowed is not None and not allowed.holds(value):
            shown = (names or {}).get(name, name)
            raise InvalidArgumentError(prefix + shown, value, str(allowed))


def check_stops(field: str, stops: Sequence[str]) -> None:
    """Raises InvalidArgumentError for too many, empty, or too long stop strings."""
    if len(stops) > MAX_STOPS:
        raise InvalidArgumentError(field, f"{len(stops)} strings", f"at most {MAX_STOPS} strings")
    for index, stop in enumerate(stops):
        if not 0 < len(stop.encode("utf-8", "surrogatepass")) <= MAX_STOP_BYTES:
            raise InvalidArgumentError(
                f"{field}[{index}]", stop, f"1 to {MAX_STOP_BYTES} bytes of UTF-8"
            )


def check_logit_bias(field: str, biases: Mapping[int, float]) -> None:
    """Raises InvalidArgumentError for too many entries or a bias out of range; the worker knows the vocabulary."""
    if len(biases) > MAX_LOGIT_BIASES:
        raise InvalidArgumentError(field, f"{len(biases)} entries", f"at most {MAX_LOGIT_BIASES}")
    bound = Range(-LOGIT_BIAS_BOUND, LOGIT_BIAS_BOUND)
    for token_id, bias in biases.items():
        if not bound.holds(bias):
            raise InvalidArgumentError(f"{field}[{token_id}]", bias, str(bound))
