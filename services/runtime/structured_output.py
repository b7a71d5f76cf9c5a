"""The limits of structured output, as hotline.v1.StructuredOutput promises them; for the gateway and for the worker.

Compiling a constraint is the one thing that a client can make dear for everybody with a few bytes. Whether it makes
sense only the engine can say.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from services.runtime.errors import InvalidArgumentError

MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH = 16 * 1024, 32
MAX_REGEX_BYTES = 4 * 1024
MAX_GRAMMAR_BYTES = 8 * 1024
MAX_CHOICES, MAX_CHOICE_BYTES = 256, 1024
TEXT_LIMITS = {
    "json_schema": MAX_SCHEMA_BYTES,
    "regex": MAX_REGEX_BYTES,
    "grammar": MAX_GRAMMAR_BYTES,
}
"""Bytes of UTF-8, by the kind of the constraint."""


def check_text(field: str, kind: str, text: str) -> None:
    """Raises InvalidArgumentError, naming `field`, for a constraint that is empty, too large, or no schema.

    Args:
        kind: of TEXT_LIMITS.
    """
    size, limit = len(text.encode("utf-8", "surrogatepass")), TEXT_LIMITS[kind]
    if not size:
        raise InvalidArgumentError(field, text, f"1 to {limit} bytes of UTF-8")
    if size > limit:
        raise InvalidArgumentError(field, f"{size} bytes", f"1 to {limit} bytes of UTF-8")
    if kind == "json_schema":
        _check_schema(field, text)


def _check_schema(field: str, text: str) -> None:
    try:
        schema = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        raise InvalidArgumentError(field, text, "one whole JSON object: a JSON Schema") from None
    except RecursionError:
        raise _too_deep(field) from None
    if not isinstance(schema, dict):
        raise InvalidArgumentError(field, schema, "a JSON object: a JSON Schema")
    if _is_deeper(schema, MAX_SCHEMA_DEPTH):
        raise _too_deep(field)


def _too_deep(field: str) -> InvalidArgumentError:
    return InvalidArgumentError(field, "<deeply nested>", f"at most {MAX_SCHEMA_DEPTH} deep")


def _is_deeper(tree: Any, limit: int) -> bool:
    """Whether more lists and objects than `limit` are inside each other."""
    level = [tree]
    for _ in range(limit):
        if not level:
            return False
        below = [value.values() if isinstance(value, dict) else value for value in level]
        level = [child for values in below for child in values if isinstance(child, dict | list)]
    return bool(level)


def check_choices(field: str, choices: Sequence[str]) -> None:
    """Raises InvalidArgumentError, naming `field` or one of its values, for too few, too many, empty or too long ones."""
    if not 0 < len(choices) <= MAX_CHOICES:
        raise InvalidArgumentError(field, f"{len(choices)} values", f"1 to {MAX_CHOICES} values")
    for index, choice in enumerate(choices):
        size = len(choice.encode("utf-8", "surrogatepass"))
        if not 0 < size <= MAX_CHOICE_BYTES:
            shown = choice if not size else f"{size} bytes"
            raise InvalidArgumentError(
                f"{field}[{index}]", shown, f"1 to {MAX_CHOICE_BYTES} bytes of UTF-8"
            )
