"""JSON bodies as typed structs, and how a body that is none is told about: by field, value and limit."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from services.gateway.json_words import expectation
from services.gateway.parameter_table import TABLE
from services.runtime.errors import InvalidArgumentError

_SHOWN_BYTES = 60
_CHOICES = {
    "].role": "system, developer, user, assistant or tool",
    "].type": "text or image_url",
    "response_format.type": "text, json_object or json_schema",
    "history.images": "none, last or all",
    "cache_scope": "owner or session",
}
"""What may stand where msgspec says no more than "invalid", by the end of the path."""
_WORDS = {parameter.name: parameter.kind.words for parameter in TABLE}
_PATH = re.compile(r"(?P<problem>.*?)(?: - at `(?P<path>.*)`)?", re.DOTALL)
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")
_BAD_CHARACTER = re.compile(r".*invalid character \(byte (\d+)\)", re.DOTALL)
_MAX_SEARCHED_BYTES = 1024 * 1024
"""Of a larger body it is not told where its NaN stands."""

_Body = TypeVar("_Body")


def parse(body: bytes, kind: type[_Body]) -> _Body:
    """The body as a typed struct. Raises InvalidArgumentError naming the field, as `messages[1].content[0]`."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _named(str(error), body) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _broken(str(error), body) from None
    except RecursionError:
        raise InvalidArgumentError("body", "<deeply nested>", "JSON of moderate depth") from None


def _broken(problem: str, body: bytes) -> InvalidArgumentError:
    at = _BAD_CHARACTER.fullmatch(problem)
    if at is not None and body.startswith((b"NaN", b"Infinity"), int(at[1])):
        path, value = next(_no_numbers(body), ("body", "NaN or Infinity"))
        limit = _WORDS.get(path.rpartition(".")[2], "a number that JSON has")
        return InvalidArgumentError(path, value, limit)
    beginning = body[:_SHOWN_BYTES].decode("utf-8", "replace")
    limit = "one whole JSON object, in UTF-8 and without lone surrogates"
    return InvalidArgumentError("body", beginning, limit)


def _no_numbers(body: bytes) -> Iterator[tuple[str, float]]:
    """NaN and the infinities, which some encoders write, and their paths; none where the body is broken otherwise."""
    if len(body) > _MAX_SEARCHED_BYTES:
        return
    try:
        level = [("", json.loads(body))]  # Python's own parser takes them
    except (ValueError, RecursionError):
        return
    while level:
        path, value = level.pop()
        if isinstance(value, dict):
            level += [(f"{path}.{key}".removeprefix("."), child) for key, child in value.items()]
        elif isinstance(value, list):
            level += [(f"{path}[{index}]", child) for index, child in enumerate(value)]
        elif isinstance(value, float) and not math.isfinite(value):
            yield path or "body", value


def _named(problem: str, body: bytes) -> InvalidArgumentError:
    match = _PATH.fullmatch(problem)
    assert match is not None  # noqa: S101  (the pattern matches anything)
    path = (match["path"] or "$").removeprefix("$").removeprefix(".")
    return InvalidArgumentError(
        path or "body", _value_at(path, body), _limit(match["problem"], path)
    )


def _limit(problem: str, path: str) -> str:
    words = expectation(problem)
    words = words or next((words for end, words in _CHOICES.items() if path.endswith(end)), None)
    return words or _WORDS.get(path.rpartition(".")[2], "valid")


def _value_at(path: str, body: bytes) -> Any:
    """The offending value; only on the way to an error, so a second parse does no harm."""
    try:
        value: Any = msgspec.json.decode(body)
    except msgspec.ValidationError:
        return "a number out of range"  # such as 1e400, which is JSON
    except (msgspec.DecodeError, RecursionError):
        return "<broken JSON>"  # its type was wrong before its end was reached
    for key, index in _STEP.findall(path):
        if index and isinstance(value, list) and int(index) < len(value):
            value = value[int(index)]
        elif key and isinstance(value, dict) and key in value:
            value = value[key]
    return value
