"""Free-form JSON from a client: bounded in bytes, depth and numbers before anything walks it.

Whoever turns it into protobuf walks it in Python, on the loop; and protobuf's own limits are met only far behind.
"""

import math
from typing import Any

import msgspec

from services.gateway.json_words import expectation
from services.runtime.errors import InvalidArgumentError

MAX_DEPTH = 16
"""Lists and objects inside each other; google.protobuf.Struct would take 32."""
_SHOWN_BYTES = 60
ABSENT = msgspec.Raw(b"null")
"""The default of a field that the body's parser skips."""


def is_absent(value: Any) -> bool:
    """Whether a field was left out or is null, skipped or not."""
    return value is None or (
        isinstance(value, msgspec.Raw) and bytes(memoryview(value)[:4]) == b"null"
    )


def read_tree(
    field: str, raw: msgspec.Raw, kind: Any, limit_bytes: int, depth: int = MAX_DEPTH
) -> Any:
    """The value of a field that the body's parser skipped.

    Args:
        field: its path, for errors.
        raw: its JSON, known to be well-formed.
        kind: what it must be, a type as msgspec takes it.
        limit_bytes: of JSON.
        depth: how many lists and objects may be inside each other.

    Raises:
        InvalidArgumentError: too large, too deep, of another type, with a number that no double holds, or text that is
            no Unicode.
    """
    size = len(memoryview(raw))
    if size > limit_bytes:
        raise InvalidArgumentError(field, f"{size} bytes of JSON", f"at most {limit_bytes} bytes")
    try:
        value = msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        problem = str(error).partition(" - at ")[0]
        limit = expectation(problem) or "made of numbers that a double can hold"
        raise InvalidArgumentError(field, shown(raw), limit) from None
    except RecursionError:
        raise InvalidArgumentError(field, "<deeply nested>", f"at most {depth} deep") from None
    except (msgspec.DecodeError, UnicodeError):  # the parser skips over broken text
        raise InvalidArgumentError(
            field, _beginning(raw), "UTF-8 without lone surrogates"
        ) from None
    _check(field, value, depth)
    return value


def shown(raw: msgspec.Raw) -> Any:
    """What a field holds, for the words of an error; its beginning where nothing can hold it."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError):  # a number that no double holds, or broken text
        return _beginning(raw)
    except RecursionError:  # its type was wrong before its depth was met
        return "<deeply nested>"


def _beginning(raw: msgspec.Raw) -> str:
    return bytes(memoryview(raw)[:_SHOWN_BYTES]).decode("utf-8", "replace")


def _check(field: str, tree: Any, limit: int) -> None:
    level, depth = [tree], 0
    while level:
        if depth > limit:
            raise InvalidArgumentError(field, "<deeply nested>", f"at most {limit} deep")
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += value.values()
            elif isinstance(value, list):
                below += value
            elif isinstance(value, int | float) and not _is_double(value):
                raise InvalidArgumentError(field, value, "made of numbers that a double can hold")
        level, depth = below, depth + 1


def _is_double(value: float) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False
