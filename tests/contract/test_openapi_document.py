"""The OpenAPI document: valid, whole, and saying what the code's own tables say."""

import json
import re
from typing import Any

import pytest
from hotline.v1 import openai_pb2
from openapi_spec_validator import OpenAPIV31SpecValidator

from services.gateway import openapi_document
from services.gateway.openapi_operations import OPERATIONS
from services.gateway.parameter import Route
from services.gateway.parameter_table import of_route
from services.runtime.error_table import TABLE

DOCUMENT: dict[str, Any] = json.loads(openapi_document.encoded())
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
OPERATIONS_SHOWN = [
    operation for methods in DOCUMENT["paths"].values() for operation in methods.values()
]


def test_it_is_a_valid_openapi_3_1_document():
    assert DOCUMENT["openapi"].startswith("3.1.")
    OpenAPIV31SpecValidator(DOCUMENT).validate()


def test_every_route_of_the_contract_is_in_it():
    rpcs = {rpc.name for rpc in openai_pb2.DESCRIPTOR.services_by_name["OpenAIService"].methods}
    assert set(OPERATIONS) == rpcs
    shown = {operation["operationId"].removesuffix("Alias") for operation in OPERATIONS_SHOWN}
    assert shown == {name[0].lower() + name[1:] for name in rpcs}


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("/v1/chat/completions", "post"),
        ("/v1/completions", "post"),
        ("/v1/models", "get"),
        ("/v1/models/{model}", "get"),
        ("/health", "get"),
        ("/health/{probe}", "get"),
        ("/v1/tokenize", "post"),
        ("/tokenize", "post"),
        ("/v1/detokenize", "post"),
        ("/detokenize", "post"),
        ("/openapi.json", "get"),
        ("/v1/openapi.json", "get"),
        ("/v1/generations/{generation_id}/events", "get"),
    ],
)
def test_a_path_stands_as_a_client_writes_it(path, method):
    assert list(DOCUMENT["paths"][path]) == [method]


@pytest.mark.parametrize(
    ("route", "schema"),
    [
        (Route.CHAT, "ChatCompletionRequest"),
        (Route.COMPLETIONS, "CompletionRequest"),
    ],
)
def test_every_parameter_of_the_table_is_in_its_body(route, schema):
    properties = SCHEMAS[schema]["properties"]
    for parameter in of_route(route):
        shown = properties[parameter.name]
        assert parameter.text in shown["description"]
        assert "null" in json.dumps(shown)
    assert properties["temperature"]["maximum"] == 2


def test_every_status_of_the_error_table_is_documented_with_all_its_codes():
    responses = DOCUMENT["components"]["responses"]
    for row in TABLE.values():
        response = responses[f"Error{row.http_status}"]
        assert f"`{row.openai_code}` ({row.openai_type})" in response["description"]
        schema = response["content"]["application/json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/ErrorBody"}
    assert set(responses) == {f"Error{row.http_status}" for row in TABLE.values()}
    used = set(re.findall(r"#/components/responses/(\w+)", json.dumps(DOCUMENT["paths"])))
    assert used == set(responses)


def test_an_error_has_openai_s_four_fields():
    assert SCHEMAS["ErrorBody"]["required"] == ["error"]
    assert set(SCHEMAS["ErrorObject"]["properties"]) == {"message", "type", "param", "code"}


def test_answers_are_spelt_out_to_the_last_field():
    shown = SCHEMAS["ChoiceLogprobs"]["properties"]["content"]["items"]
    assert shown == {"$ref": "#/components/schemas/ShownToken"}
    assert set(SCHEMAS["ShownToken"]["required"]) == {"token", "logprob", "bytes", "top_logprobs"}
    for schema in ("LegacyLogprobs", "UsageBody", "Delta", "TokenizeAnswer"):
        assert all(SCHEMAS[schema]["properties"].values()), schema


def test_only_health_needs_no_key():
    open_paths = {
        path
        for path, methods in DOCUMENT["paths"].items()
        for operation in methods.values()
        if operation.get("security") == []
    }
    assert open_paths == {"/health", "/health/{probe}"}


def test_what_streams_says_so():
    for path in ("/v1/chat/completions", "/v1/completions"):
        content = DOCUMENT["paths"][path]["post"]["responses"]["200"]["content"]
        assert set(content) == {"application/json", "text/event-stream"}


def test_every_schema_that_is_named_is_there_and_used():
    text = json.dumps(DOCUMENT)
    assert set(re.findall(r"#/components/schemas/(\w+)", text)) == set(SCHEMAS)
