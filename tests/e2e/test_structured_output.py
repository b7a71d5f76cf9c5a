"""Constraints on the output under all their names, through Envoy and the real engine; malformed ones are 400 by name."""

import json
import re

import httpx
import pytest

HI = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 40, "temperature": 0}
SCHEMA = {
    "type": "object",
    "properties": {"tap": {"type": "boolean"}},
    "required": ["tap"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def http(stack):
    with httpx.Client(base_url=stack.base_url, timeout=60, trust_env=False) as client:
        yield client


def schema_format(schema: object) -> dict[str, object]:
    return {
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    }


RECURSIVE = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
MALFORMED = [
    pytest.param({"guided_regex": "("}, "guided_regex", id="a regex that opens only"),
    pytest.param({"guided_regex": "a{5,2}"}, "guided_regex", id="a regex that counts down"),
    pytest.param({"guided_regex": "a\0b"}, "guided_regex", id="a regex with a zero byte"),
    pytest.param({"guided_grammar": "root ::="}, "guided_grammar", id="half a grammar"),
    pytest.param(
        {"guided_grammar": "root ::= nothing"}, "guided_grammar", id="a rule that is not there"
    ),
    pytest.param({"guided_grammar": 'x ::= "a"'}, "guided_grammar", id="a grammar without root"),
    pytest.param({"guided_json": {"type": "nonsense"}}, "guided_json", id="a type that is none"),
    pytest.param(
        {"guided_json": {"type": "integer", "multipleOf": 3}}, "guided_json", id="a multiple"
    ),
    pytest.param(
        {"guided_json": {"$ref": "#/$defs/x"}}, "guided_json", id="a reference to nothing"
    ),
    pytest.param({"guided_json": RECURSIVE}, "guided_json", id="a reference to itself"),
    pytest.param(
        {"structured_outputs": {"grammar": "root ::="}},
        "structured_outputs.grammar",
        id="newer name",
    ),
    pytest.param(
        {"extra_body": {"structured_outputs": {"regex": "["}}},
        "extra_body.structured_outputs.regex",
        id="nested",
    ),
    pytest.param(
        schema_format({"type": "nonsense"}),
        "response_format.json_schema.schema",
        id="response_format",
    ),
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("fields", "param"), MALFORMED)
def test_case_16_a_malformed_constraint_is_400_by_its_clients_name(http, fields, param, stream):
    answer = http.post("/chat/completions", json={**HI, **fields, "stream": stream})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert (error["param"], error["code"]) == (param, "invalid_value")
    assert error["message"].startswith(f"{param}: ")
    assert not re.search("vllm|xgrammar|structured_output\\.|Traceback|sampling", error["message"])
    again = http.post("/chat/completions", json={**HI, "max_tokens": 3})
    assert again.status_code == 200


def is_schema(text: str) -> bool:
    return set(json.loads(text)) == {"tap"}


FORMS = [
    pytest.param(schema_format(SCHEMA), is_schema, id="response_format json_schema"),
    pytest.param({"guided_json": json.dumps(SCHEMA)}, is_schema, id="guided_json"),
    pytest.param({"structured_outputs": {"json": SCHEMA}}, is_schema, id="json"),
    pytest.param({"guided_regex": "[a-c]{3}"}, re.compile("[a-c]{3}").fullmatch, id="guided_regex"),
    pytest.param(
        {"structured_outputs": {"regex": "[a-c]{3}"}}, re.compile("[a-c]{3}").fullmatch, id="regex"
    ),
    pytest.param(
        {"guided_choice": ["Tap", "Back"]}, {"Tap", "Back"}.__contains__, id="guided_choice"
    ),
    pytest.param({"structured_outputs": {"choice": ["好"]}}, "好".__eq__, id="choice"),
    pytest.param({"guided_grammar": 'root ::= "a" "b"'}, "ab".__eq__, id="guided_grammar"),
    pytest.param({"extra_body": {"guided_regex": "abc"}}, "abc".__eq__, id="nested"),
]


@pytest.mark.parametrize(("fields", "holds"), FORMS)
def test_the_output_has_the_form_that_was_asked_for(http, fields, holds):
    answer = http.post("/chat/completions", json={**HI, **fields})
    assert answer.status_code == 200, answer.text
    [choice] = answer.json()["choices"]
    assert choice["finish_reason"] == "stop"
    assert holds(choice["message"]["content"])
