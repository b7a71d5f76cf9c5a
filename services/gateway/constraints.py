"""The ways in which clients ask for structured output: OpenAI's, and vLLM's newer and older ones. All make a Constraint."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from services.gateway.json_tree import ABSENT, is_absent, read_tree
from services.gateway.parameter_kinds import JsonSchema
from services.runtime.errors import InvalidArgumentError
from services.runtime.structured_output import (
    MAX_CHOICE_BYTES,
    MAX_CHOICES,
    MAX_SCHEMA_BYTES,
    MAX_SCHEMA_DEPTH,
    TEXT_LIMITS,
    check_choices,
    check_text,
)

_SHOWN_BYTES = 60
_ESCAPED = 3
"""Bytes of JSON that one byte of text takes where all of it is escaped, as Python's encoder does with an emoji."""


@dataclass(frozen=True)
class Constraint:
    """A form that the output must have, within the limits of structured output."""

    kind: str
    """`json_object`, `json_schema`, `regex`, `choice` or `grammar`, as in hotline.v1.StructuredOutput."""
    field: str
    """Where the client wrote it."""
    text: str = ""
    """The schema, expression or grammar."""
    choices: Sequence[str] = ()
    made_of: str = ""
    """What it was made of, where that stood elsewhere; blamed where an engine does not understand it."""


def only_one(constraints: Sequence[Constraint]) -> Constraint | None:
    """The constraint, if there is one. Raises InvalidArgumentError, naming both, for a second one."""
    if len(constraints) > 1:
        first, second = (constraint.field for constraint in constraints[:2])
        raise InvalidArgumentError(
            second, "set", f"absent where {first} is set: at most one constraint on the output"
        )
    return constraints[0] if constraints else None


@dataclass(frozen=True)
class ConstraintText:
    """A regular expression or a grammar."""

    kind: str
    type: Any = str | None

    @property
    def words(self) -> str:
        """See Kind."""
        return f"a string of 1 to {TEXT_LIMITS[self.kind]} bytes of UTF-8"

    @property
    def schema(self) -> JsonSchema:
        """See Kind."""
        return {"type": "string", "minLength": 1, "maxLength": TEXT_LIMITS[self.kind]}

    def read(self, field: str, value: Any) -> Constraint:
        """See Kind."""
        check_text(field, self.kind, value)
        return Constraint(self.kind, field, value)


@dataclass(frozen=True)
class Schema:
    """A JSON Schema: an object, or its JSON text in a string."""

    type: Any = msgspec.Raw
    words: str = f"a JSON Schema (an object, or its JSON in a string) of at most {MAX_SCHEMA_BYTES} bytes, {MAX_SCHEMA_DEPTH} deep"

    @property
    def schema(self) -> JsonSchema:
        """See Kind."""
        return {
            "anyOf": [
                {"type": "object"},
                {"type": "string", "contentMediaType": "application/json"},
            ]
        }

    def read(self, field: str, value: Any) -> Constraint:
        """See Kind."""
        json = memoryview(value)
        if bytes(json[:1]) == b'"':
            text: str = read_tree(field, value, str, _ESCAPED * MAX_SCHEMA_BYTES)
        elif len(json) > MAX_SCHEMA_BYTES:
            limit = f"at most {MAX_SCHEMA_BYTES} bytes"
            raise InvalidArgumentError(field, f"{len(json)} bytes of JSON", limit)
        else:
            text = _decoded(field, bytes(json))
        check_text(field, "json_schema", text)
        return Constraint("json_schema", field, text)


def _decoded(field: str, json: bytes) -> str:
    try:
        return json.decode()
    except UnicodeDecodeError:  # the body's parser skips over broken text
        shown = json[:_SHOWN_BYTES].decode("utf-8", "replace")
        raise InvalidArgumentError(field, shown, "a JSON Schema in UTF-8") from None


@dataclass(frozen=True)
class Choices:
    """A list of strings, of which the output is one."""

    type: Any = msgspec.Raw
    words: str = f"a list of 1 to {MAX_CHOICES} strings, each 1 to {MAX_CHOICE_BYTES} bytes"

    @property
    def schema(self) -> JsonSchema:
        """See Kind."""
        one = {"type": "string", "minLength": 1, "maxLength": MAX_CHOICE_BYTES}
        return {"type": "array", "items": one, "minItems": 1, "maxItems": MAX_CHOICES}

    def read(self, field: str, value: Any) -> Constraint:
        """See Kind."""
        limit = _ESCAPED * MAX_CHOICES * MAX_CHOICE_BYTES
        choices: list[str] = read_tree(field, value, list[str], limit)
        check_choices(field, choices)
        return Constraint("choice", field, choices=choices)


class NamedSchema(msgspec.Struct):
    """`response_format.json_schema`; its name and the like are for the model's own eyes nowhere."""

    schema: msgspec.Raw


class Format(msgspec.Struct):
    """`response_format`."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None


@dataclass(frozen=True)
class ResponseFormat:
    """OpenAI's `response_format`; `text` is no constraint."""

    type: Any = Format | None
    words: str = (
        "an object: `type` is `text`, `json_object`, or `json_schema` with `json_schema.schema`, "
        f"of at most {MAX_SCHEMA_BYTES} bytes, {MAX_SCHEMA_DEPTH} deep"
    )

    @property
    def schema(self) -> JsonSchema:
        """See Kind."""
        plain = {"type": "object", "required": ["type"]}
        named = {
            "type": "object",
            "required": ["schema"],
            "properties": {"schema": {"type": "object"}},
        }
        return {
            "anyOf": [
                {**plain, "properties": {"type": {"enum": ["text", "json_object"]}}},
                {
                    "type": "object",
                    "required": ["type", "json_schema"],
                    "properties": {"type": {"const": "json_schema"}, "json_schema": named},
                },
            ]
        }

    def read(self, field: str, value: Any) -> Constraint | None:
        """See Kind."""
        form: Format = value
        if form.type == "text":
            return None
        if form.type == "json_object":
            return Constraint("json_object", field)
        if form.json_schema is None:
            raise InvalidArgumentError(f"{field}.json_schema", None, "an object")
        field = f"{field}.json_schema.schema"
        beginning = bytes(memoryview(form.json_schema.schema)[:_SHOWN_BYTES])
        if beginning[:1] != b"{":
            shown = beginning.decode("utf-8", "replace")
            raise InvalidArgumentError(field, shown, "a JSON object: a JSON Schema")
        return Schema().read(field, form.json_schema.schema)


class Structured(msgspec.Struct):
    """`structured_outputs`."""

    json: msgspec.Raw = ABSENT
    regex: str | None = None
    choice: msgspec.Raw = ABSENT
    grammar: str | None = None
    json_object: bool | None = None


_STRUCTURED: Mapping[str, ConstraintText | Schema | Choices] = {
    "json": Schema(),
    "regex": ConstraintText("regex"),
    "choice": Choices(),
    "grammar": ConstraintText("grammar"),
}


@dataclass(frozen=True)
class StructuredOutputs:
    """vLLM's `structured_outputs`."""

    type: Any = Structured | None
    words: str = (
        "an object with exactly one of `json`, `regex`, `choice`, `grammar` (each as its `guided_` name) "
        "and `json_object` (true)"
    )

    @property
    def schema(self) -> JsonSchema:
        """See Kind."""
        fields: dict[str, JsonSchema] = {name: kind.schema for name, kind in _STRUCTURED.items()}
        fields["json_object"] = {"const": True}
        return {
            "oneOf": [
                {"type": "object", "required": [name], "properties": {name: schema}}
                for name, schema in fields.items()
            ]
        }

    def read(self, field: str, value: Any) -> Constraint:
        """See Kind."""
        found = [
            kind.read(f"{field}.{name}", given)
            for name, kind in _STRUCTURED.items()
            if not is_absent(given := getattr(value, name))
        ]
        if value.json_object:
            found.append(Constraint("json_object", f"{field}.json_object"))
        constraint = only_one(found)
        if constraint is None:
            wanted = "an object with one of json, regex, choice, grammar and json_object (true)"
            raise InvalidArgumentError(field, "nothing of these", wanted)
        return constraint
