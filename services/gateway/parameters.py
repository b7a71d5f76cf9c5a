"""The checks that native and REST requests share, naming each field as the client wrote it."""

from collections.abc import Iterable, Mapping, Sequence

from services.runtime.errors import InvalidArgumentError
from services.runtime.sampling_ranges import (
    LOGIT_BIASES,
    MAX_LOGIT_BIASES,
    MAX_STOP_BYTES,
    MAX_STOPS,
    SAMPLING_RANGES,
)

MAX_MESSAGES = 1024
MAX_PARTS = 1024
"""Over all messages."""


def check_conversation_size(message_count: int, part_counts: Iterable[int]) -> None:
    """Raises InvalidArgumentError for no message, or too many messages or parts.

    Args:
        part_counts: of the messages whose content is a list; counted only where the messages are few enough.
    """
    if not 0 < message_count <= MAX_MESSAGES:
        raise InvalidArgumentError(
            "messages", f"{message_count} messages", f"1 to {MAX_MESSAGES} messages"
        )
    part_count = sum(part_counts)
    if part_count > MAX_PARTS:
        raise InvalidArgumentError(
            "messages", f"{part_count} parts", f"at most {MAX_PARTS} parts in all"
        )


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
        allowed = SAMPLING_RANGES.get(name)
        if allowed is not None and not allowed.holds(value):
            shown = (names or {}).get(name, name)
            raise InvalidArgumentError(prefix + shown, value, str(allowed))
    least, most = values.get("min_tokens"), values.get("max_tokens")
    if least is not None and most is not None and least > most:
        raise InvalidArgumentError(f"{prefix}min_tokens", least, f"at most max_tokens, {most}")


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
    for token_id, bias in biases.items():
        if not LOGIT_BIASES.holds(bias):
            raise InvalidArgumentError(f"{field}[{token_id}]", bias, str(LOGIT_BIASES))
