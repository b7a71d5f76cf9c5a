"""What a parameter's JSON value may be: how it is parsed, checked and described. See parameter_table.py."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from services.gateway.json_tree import read_tree
from services.gateway.parameters import check_logit_bias, check_stops
from services.runtime.errors import InvalidArgumentError
from services.runtime.sampling_ranges import (
    LOGIT_BIASES,
    MAX_LOGIT_BIASES,
    MAX_STOP_BYTES,
    MAX_STOP_TOKENS,
    MAX_STOPS,
    Range,
)

MAX_BIASES_BYTES = 64 * 1024
MAX_STOPS_BYTES = 32 * 1024
UINT32_MAX = 2**32 - 1
JsonSchema = Mapping[str, Any]


class Kind(Protocol):
    """One kind of value. Lists and objects are skipped by the body's parser (msgspec.Raw) and read within limits."""

    @property
    def type(self) -> Any:
        """What the body's parser makes of it, as msgspec takes it; null counts as absent everywhere."""

    @property
    def words(self) -> str:
        """Type and limits, for people: "a number from 0 to 2"."""

    @property
    def schema(self) -> JsonSchema:
        """JSON Schema 2020-12; what JSON Schema cannot say, such as a limit in bytes, is in `words` only."""

    def read(self, field: str, value: Any) -> Any:
        """The checked value. Raises InvalidArgumentError naming `field` or an element of it.

        Args:
            field: as the client wrote it.
            value: what the body's parser made of it.
        """


def _bounds(allowed: Range) -> dict[str, Any]:
    bounds: dict[str, Any] = {"exclusiveMinimum" if allowed.open_low else "minimum": allowed.low}
    return bounds if math.isinf(allowed.high) else bounds | {"maximum": allowed.high}


@dataclass(frozen=True)
class Number:
    """A JSON number in a range; also an integer one."""

    allowed: Range
    is_integer: bool = False

    @property
    def type(self) -> Any:
        """See Kind."""
        return int | None if self.is_integer else float | None

    @property
    def words(self) -> str:
        """See Kind."""
        return f"{'an integer' if self.is_integer else 'a number'} {self.allowed}"

    @property
    def schema(self) -> JsonSchema:
        """See Kind."""
        return {"type": "integer" if self.is_integer else "number", **_bounds(self.allowed)}

    def read(self, field: str, value: Any) -> float:
        """See Kind."""
        if not self.allowed.holds(value):
            raise InvalidArgumentError(field, value, str(self.allowed))
        number: float = value
        return number


@dataclass(frozen=True)
class Boolean:
    """true or false."""

    type: Any = bool | None
    words: str = "true or false"

    @property
    def schema(self) -> JsonSchema:
        """See Kind."""
        return {"type": "boolean"}

    def read(self, field: str, value: Any) -> bool:
        """See Kind."""
        return bool(value)


@dataclass(frozen=True)
class Text:
    """A string."""

    limit_bytes: int
    type: Any = str | None

    @property
    def words(self) -> str:
        """See Kind."""
        return f"a string of at most {self.limit_bytes} bytes of UTF-8"

    @property
    def schema(self) -> JsonSchema:
        """See Kind."""
        return {"type": "string", "maxLength": self.limit_bytes}

    def read(self, field: str, value: Any) -> str:
        """See Kind."""
        text: str = value
        size = len(text.encode())
        if size > self.limit_bytes:
            raise InvalidArgumentError(
                field, f"{size} bytes", f"at most {self.limit_bytes} bytes of UTF-8"
            )
        return text


@dataclass(frozen=True)
class Stops:
    """A string, or a list of them; read as a list."""

    type: Any = msgspec.Raw
    words: str = f"a string, or a list of up to {MAX_STOPS}, each 1 to {MAX_STOP_BYTES} bytes"

    @property
    def schema(self) -> JsonSchema:
        """See Kind."""
        one = {"type": "string", "minLength": 1, "maxLength": MAX_STOP_BYTES}
        return {"anyOf": [one, {"type": "array", "items": one, "maxItems": MAX_STOPS}]}

    def read(self, field: str, value: Any) -> list[str]:
        """See Kind."""
        stops: str | list[str] = read_tree(field, value, str | list[str], MAX_STOPS_BYTES)
        stops = [stops] if isinstance(stops, str) else stops
        check_stops(field, stops)
        return stops


@dataclass(frozen=True)
class TokenIds:
    """A list of token ids. Whether the vocabulary has them only the worker knows."""

    type: Any = msgspec.Raw
    words: str = f"a list of up to {MAX_STOP_TOKENS} token ids of the vocabulary"

    @property
    def schema(self) -> JsonSchema:
        """See Kind."""
        one = {"type": "integer", "minimum": 0, "maximum": UINT32_MAX}
        return {"type": "array", "items": one, "maxItems": MAX_STOP_TOKENS}

    def read(self, field: str, value: Any) -> list[int]:
        """See Kind."""
        ids: list[int] = read_tree(field, value, list[int], MAX_STOPS_BYTES)
        if len(ids) > MAX_STOP_TOKENS:
            raise InvalidArgumentError(field, f"{len(ids)} ids", f"at most {MAX_STOP_TOKENS} ids")
        for index, token_id in enumerate(ids):
            if not 0 <= token_id <= UINT32_MAX:
                raise InvalidArgumentError(f"{field}[{index}]", token_id, "the id of a token")
        return ids


@dataclass(frozen=True)
class Biases:
    """An object: token id, as a string -> bias; read with integer keys."""

    type: Any = msgspec.Raw
    words: str = (
        f"an object of up to {MAX_LOGIT_BIASES} token ids, each with a number {LOGIT_BIASES}"
    )

    @property
    def schema(self) -> JsonSchema:
        """See Kind."""
        return {
            "type": "object",
            "propertyNames": {"pattern": "^[0-9]{1,9}$"},
            "additionalProperties": {"type": "number", **_bounds(LOGIT_BIASES)},
            "maxProperties": MAX_LOGIT_BIASES,
        }

    def read(self, field: str, value: Any) -> dict[int, float]:
        """See Kind."""
        by_key: dict[str, float] = read_tree(field, value, dict[str, float], MAX_BIASES_BYTES)
        biases: dict[int, float] = {}
        for key, bias in by_key.items():
            if not key.isascii() or not key.isdigit() or len(key) > 9:
                raise InvalidArgumentError(field, key, "an object whose keys are token ids")
            biases[int(key)] = bias
        check_logit_bias(field, biases)
        return biases


@dataclass(frozen=True)
class Objects:
    """Free-form JSON: an object, or a list of objects."""

    limit_bytes: int
    max_count: int | None = None
    """None: one object."""
    type: Any = msgspec.Raw

    @property
    def words(self) -> str:
        """See Kind."""
        what = (
            "an object" if self.max_count is None else f"a list of up to {self.max_count} objects"
        )
        return f"{what} of at most {self.limit_bytes} bytes of JSON"

    @property
    def schema(self) -> JsonSchema:
        """See Kind."""
        if self.max_count is None:
            return {"type": "object"}
        return {"type": "array", "items": {"type": "object"}, "maxItems": self.max_count}

    def read(self, field: str, value: Any) -> Any:
        """See Kind."""
        kind: Any = dict[str, Any] if self.max_count is None else list[dict[str, Any]]
        tree = read_tree(field, value, kind, self.limit_bytes)
        if self.max_count is not None and len(tree) > self.max_count:
            raise InvalidArgumentError(
                field, f"{len(tree)} objects", f"at most {self.max_count} objects"
            )
        return tree


class Options(msgspec.Struct):
    """`stream_options`."""

    include_usage: bool | None = None


@dataclass(frozen=True)
class StreamOptions:
    """OpenAI's `stream_options`; read as the value of `include_usage`."""

    type: Any = Options | None
    words: str = "an object: `include_usage` is true or false"

    @property
    def schema(self) -> JsonSchema:
        """See Kind."""
        return {"type": "object", "properties": {"include_usage": {"type": ["boolean", "null"]}}}

    def read(self, field: str, value: Any) -> bool:
        """See Kind."""
        return bool(value.include_usage)
