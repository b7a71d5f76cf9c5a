"""Texts and token ids in a JSON body, bounded before anything walks them."""

import re
from typing import Any

import msgspec

from services.gateway.json_tree import shown
from services.gateway.json_words import expectation
from services.runtime.errors import InvalidArgumentError

MAX_BYTES = 8 * 1024 * 1024
"""Of JSON: a million ids, or a text of 1 MiB however it is escaped. As Python's numbers they take ten times as much."""
MAX_ID = 2**32 - 1
"""Ids are unsigned 32-bit numbers on the wire; the vocabulary's size is the tokenizer's and the worker's to check."""
_PATH = re.compile(r"(.*?)(?: - at `\$(.*)`)?", re.DOTALL)


def read_value(field: str, raw: msgspec.Raw, kind: Any) -> Any:
    """The value of a field that the body's parser skipped. Takes some 100 ms for the largest.

    Args:
        raw: its JSON, known to be well-formed.
        kind: what it must be, a type as msgspec takes it.

    Raises:
        InvalidArgumentError: too large, no Unicode, or of another type, naming the element.
    """
    size = len(memoryview(raw))
    if size > MAX_BYTES:
        raise InvalidArgumentError(field, f"{size} bytes of JSON", f"at most {MAX_BYTES} bytes")
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        match = _PATH.fullmatch(str(error))
        problem, path = match.groups() if match else ("", None)
        indices = [int(index) for index in re.findall(r"\d+", path or "")]
        value = shown(raw)
        for index in indices:
            value = value[index] if isinstance(value, list) else value
        limit = expectation(problem) or "valid"
        raise InvalidArgumentError(field + (path or ""), value, limit) from None
    except RecursionError:
        raise InvalidArgumentError(field, "<deeply nested>", "less deeply nested") from None
    except (msgspec.DecodeError, UnicodeError):  # the body's parser skips over broken text
        raise InvalidArgumentError(field, shown(raw), "UTF-8 without lone surrogates") from None


def check_ids(field: str, ids: list[int]) -> None:
    """Raises InvalidArgumentError for the first number that cannot be a token's id."""
    if ids and not 0 <= min(ids) <= max(ids) <= MAX_ID:
        at, value = next((at, value) for at, value in enumerate(ids) if not 0 <= value <= MAX_ID)
        raise InvalidArgumentError(f"{field}[{at}]", value, "the id of a token")
