"""One parameter of the OpenAI surface: a row of parameter_table.py."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from services.gateway.parameter_kinds import Kind


class Route(StrEnum):
    """A route that takes parameters."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"


@dataclass(frozen=True)
class Parameter:
    """One row."""

    name: str
    """As a client writes it."""
    kind: Kind
    """What its value may be."""
    goes_to: str
    """Where its value goes: `sampling.<field>` of hotline.v1.SamplingParameters, `render.<field>` of RenderOptions, a
    field of GenerateRequest, `answer` where it changes the answer's shape only, or empty where nothing uses it."""
    default: str
    """What absent (or null) means, for people."""
    text: str
    """A sentence for people."""
    routes: Sequence[Route] = tuple(Route)
    is_nestable: bool = False
    """It is not OpenAI's own, so that clients may have put it into a nested `extra_body`; at top level it wins."""
    replaces: str = ""
    """An older name of the same; this one wins where both are given."""


def json_schema(parameter: Parameter) -> dict[str, Any]:
    """Its JSON Schema (2020-12, as OpenAPI 3.1 has it), with a description; null is allowed and counts as absent."""
    schema = dict(parameter.kind.schema)
    kind = schema.get("type")
    if isinstance(kind, str):
        schema["type"] = [kind, "null"]
    else:
        schema = {"anyOf": [schema, {"type": "null"}]}
    about = f"{parameter.text} Must be {parameter.kind.words}. Default: {parameter.default}."
    return {**schema, "description": about}
