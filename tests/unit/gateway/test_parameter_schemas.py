"""The JSON Schema of every parameter takes what the parser takes."""

from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parameter_values import BAD, CONSTRAINTS, GOOD

from services.gateway.parameter import Parameter, Route, json_schema
from services.gateway.parameter_table import of_route

CHAT = of_route(Route.CHAT)
REPEATABLE = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
LOOSER = {"chat_template_kwargs", "guided_json", "structured_outputs"}
"""What is wrong inside of these is beyond their schema."""


def fits(parameter: Parameter, value: Any) -> bool:
    validator = jsonschema.Draft202012Validator(json_schema(parameter))
    return bool(validator.is_valid(value))


@pytest.mark.parametrize("parameter", CHAT, ids=[p.name for p in CHAT])
def test_a_schema_is_one_and_tells_limits_and_default(parameter: Parameter):
    schema = json_schema(parameter)
    jsonschema.Draft202012Validator.check_schema(schema)
    for told in (parameter.text, parameter.kind.words, parameter.default):
        assert told in schema["description"]


@pytest.mark.parametrize("parameter", CHAT, ids=[p.name for p in CHAT])
def test_null_counts_as_absent(parameter: Parameter):
    assert fits(parameter, None)


@REPEATABLE
@given(st.sampled_from(CHAT), st.data())
def test_a_right_value_fits_its_schema(parameter: Parameter, data: Any):
    assert fits(parameter, data.draw((GOOD | CONSTRAINTS)[parameter.name]))


@REPEATABLE
@given(st.sampled_from([p for p in CHAT if p.name not in LOOSER]), st.data())
def test_a_wrong_value_does_not_fit_its_schema(parameter: Parameter, data: Any):
    value = data.draw(BAD[parameter.name])
    in_bytes_only = isinstance(value, str) and "é" in value
    whole = isinstance(value, float) and value.is_integer() and parameter.kind.type == int | None
    if (
        not in_bytes_only and not whole
    ):  # JSON Schema counts characters, and takes 2.0 for an integer
        assert not fits(parameter, value)
