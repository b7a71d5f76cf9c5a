"""Chat request bodies: what is accepted, and how every refusal names the field, the value and the limit."""

import json
from typing import Any

import pytest

from services.gateway import openai_wire
from services.gateway.caller import Caller
from services.gateway.interfaces import GenerationRequest
from services.gateway.openai_request import ChatRequest, parse
from services.runtime.errors import InvalidArgumentError, ServiceError, UnimplementedError

HI = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def generation(body: dict[str, Any]) -> GenerationRequest:
    chat = parse(json.dumps(body).encode(), ChatRequest)
    return openai_wire.generation_request(chat, "g", "m", Caller("o"), 1.0)


def test_the_probe_of_a_phone_agent_is_accepted():
    request = generation({**HI, "max_tokens": 5, "temperature": 0.0})
    assert request.max_tokens == 5
    assert request.sampling.temperature == 0
    assert request.messages[0].text == "Hi"


def test_string_and_list_content_stay_what_they_are():
    parts = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
        {"type": "text", "text": "tap"},
    ]
    body = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": parts}]}
    first, second = generation(body).messages
    assert first.WhichOneof("content") == "text"
    assert [part.WhichOneof("kind") for part in second.parts.parts] == ["image", "text"]


def test_unknown_extra_fields_are_accepted_and_null_counts_as_absent():
    request = generation({**HI, "user": "u", "some_new_thing": {"a": 1}, "temperature": None})
    assert not request.sampling.HasField("temperature")


def test_an_assistant_message_may_be_empty_or_null():
    for content in ("", None):
        message = {"role": "assistant", "content": content}
        assert generation({"messages": [message, *HI["messages"]]}).messages[0].text == ""


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(lambda s: s, id="top level"),
        pytest.param(lambda s: {"chat_template_kwargs": s}, id="chat_template_kwargs"),
        pytest.param(lambda s: {"extra_body": s}, id="extra_body"),
        pytest.param(
            lambda s: {"extra_body": {"chat_template_kwargs": s}},
            id="extra_body.chat_template_kwargs",
        ),
    ],
)
def test_the_switches_are_honoured_wherever_they_stand(place):
    request = generation({**HI, **place({"enable_thinking": False, "return_reasoning": True})})
    assert request.render_options.enable_thinking is False
    assert request.render_options.HasField("enable_thinking")
    assert request.split_reasoning
    assert not request.render_options.HasField("template_variables")


def test_other_template_variables_go_to_the_template():
    request = generation({**HI, "chat_template_kwargs": {"style": "short"}})
    assert request.render_options.template_variables["style"] == "short"


BAD = [
    ("max_tokens", 0, "max_tokens"),
    ("max_tokens", -1, "max_tokens"),
    ("max_tokens", 1.5, "max_tokens"),
    ("max_tokens", "3", "max_tokens"),
    ("max_tokens", True, "max_tokens"),
    ("max_completion_tokens", 0, "max_completion_tokens"),
    ("temperature", -1, "temperature"),
    ("temperature", 2.1, "temperature"),
    ("temperature", "hot", "temperature"),
    ("temperature", 10**400, "temperature"),
    ("top_p", 0, "top_p"),
    ("top_p", 1.01, "top_p"),
    ("top_k", -2, "top_k"),
    ("top_k", 2**40, "top_k"),
    ("min_p", 1.5, "min_p"),
    ("presence_penalty", 3, "presence_penalty"),
    ("frequency_penalty", -3, "frequency_penalty"),
    ("repetition_penalty", 0, "repetition_penalty"),
    ("seed", 2**63, "seed"),
    ("n", 0, "n"),
    ("n", 10_000, "n"),
    ("n", True, "n"),
    ("stop", ["x"] * 10_000, "stop"),
    ("stop", "", "stop[0]"),
    ("stop", ["ok", "y" * 300], "stop[1]"),
    ("stop", 5, "stop"),
    ("stream", "yes", "stream"),
    ("stream_options", {"include_usage": True}, "stream_options"),
    ("logit_bias", {"x": 1}, "logit_bias"),
    ("logit_bias", {"5": 101}, "logit_bias[5]"),
    ("response_format", {"type": "json_schema"}, "response_format.json_schema"),
    ("response_format", {"type": "yaml"}, "response_format.type"),
    ("priority", 101, "priority"),
    ("messages", [], "messages"),
    ("messages", None, "messages"),
    ("messages", "Hi", "messages"),
    ("messages", [{"content": "Hi"}], "messages[0]"),
    ("messages", [{"role": None, "content": "Hi"}], "messages[0].role"),
    ("messages", [{"role": "robot", "content": "Hi"}], "messages[0].role"),
    ("messages", [{"role": "user"}], "messages[0].content"),
    ("messages", [{"role": "user", "content": None}], "messages[0].content"),
    ("messages", [{"role": "user", "content": 5}], "messages[0].content"),
    ("messages", [{"role": "user", "content": [{"text": "x"}]}], "messages[0].content[0]"),
    (
        "messages",
        [{"role": "user", "content": [{"type": "hologram"}]}],
        "messages[0].content[0].type",
    ),
    (
        "messages",
        [{"role": "user", "content": [{"type": "image_url"}]}],
        "messages[0].content[0]",
    ),
    ("enable_thinking", "no", "enable_thinking"),
    ("chat_template_kwargs", {"enable_thinking": 1}, "chat_template_kwargs.enable_thinking"),
    ("model", 7, "model"),
]


@pytest.mark.parametrize(
    ("field", "value", "param"), BAD, ids=[f"{f}={str(v)[:40]}" for f, v, _ in BAD]
)
def test_a_bad_value_is_refused_by_name(field, value, param):
    with pytest.raises(InvalidArgumentError) as refused:
        generation({**HI, field: value})
    assert refused.value.field == param
    assert refused.value.metadata["value"]
    assert refused.value.metadata["limit"]
    assert refused.value.message.startswith(f"{param}: ")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="cut"),
        pytest.param(b"[]", id="array"),
        pytest.param(b'"Hi"', id="string"),
        pytest.param(b"\xff\xfe", id="not UTF-8"),
        pytest.param(b'{"messages": NaN}', id="NaN"),
        pytest.param(b'{"messages":[{"role":"user","content":"\\ud800"}]}', id="lone surrogate"),
        pytest.param(b"[" * 100_000, id="deeply nested"),
        pytest.param(b'{"x":' * 100_000, id="deeply nested objects"),
        pytest.param(b"\x00" * 100, id="zeros"),
    ],
)
def test_a_broken_body_is_refused_as_the_body(body):
    with pytest.raises(ServiceError) as refused:
        parse(body, ChatRequest)
    assert refused.value.field == "body"


def test_what_this_version_does_not_build_says_so():
    with pytest.raises(UnimplementedError, match="logprobs"):
        generation({**HI, "logprobs": True})


def test_a_huge_max_tokens_means_the_room_left():
    assert generation({**HI, "max_tokens": 10**30}).max_tokens == 2**32 - 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param(
            {"temperature": "hot"},
            "temperature: 'hot' is not allowed; must be a number, not a string.",
            id="type",
        ),
        pytest.param(
            {"top_p": 0}, "top_p: 0.0 is not allowed; must be above 0 and at most 1.", id="range"
        ),
        pytest.param(
            {"messages": [{"role": "robot", "content": "x"}]},
            "messages[0].role: 'robot' is not allowed; must be system, developer, user, assistant or tool.",
            id="choice",
        ),
        pytest.param(
            {"min_tokens": 10, "max_tokens": 5},
            "min_tokens: 10 is not allowed; must be at most max_tokens, 5.",
            id="one against another",
        ),
    ],
)
def test_a_refusal_reads_like_a_sentence(fields, message):
    with pytest.raises(InvalidArgumentError) as refused:
        generation({**HI, **fields})
    assert refused.value.message == message


def test_a_body_that_is_no_json_is_shown_from_its_beginning():
    with pytest.raises(InvalidArgumentError) as refused:
        parse(b'{"model": ', ChatRequest)
    assert refused.value.message == (
        "body: '{\"model\": ' is not allowed; must be one whole JSON object, in UTF-8 and without "
        "lone surrogates."
    )


def nested(depth: int) -> Any:
    tree: Any = "x"
    for _ in range(depth):
        tree = {"a": tree}
    return tree


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("chat_template_kwargs", {"v": nested(33)}, id="deep variables"),
        pytest.param("chat_template_kwargs", {"v": [[]] * 10_000}, id="large variables"),
        pytest.param("chat_template_kwargs", {"v": 10**400}, id="huge number"),
        pytest.param("chat_template_kwargs", [1], id="variables that are a list"),
        pytest.param("tools", [{"a": nested(33)}], id="deep tools"),
        pytest.param("tools", [{}] * 3_000, id="many tools"),
        pytest.param("tools", [{}] * 100_000, id="large tools"),
        pytest.param("tools", [5], id="tools that are numbers"),
        pytest.param("logit_bias", {str(n): 1 for n in range(100_000)}, id="many biases"),
        pytest.param("stop", ["x"] * 1_000_000, id="a million stops"),
    ],
)
def test_free_form_fields_are_bounded_before_anything_walks_them(field, value):
    with pytest.raises(InvalidArgumentError) as refused:
        generation({**HI, field: value})
    assert refused.value.field.startswith(field)


def test_the_parts_of_a_conversation_are_bounded_in_all():
    message = {"role": "user", "content": [{"type": "text", "text": ""}] * 200}
    with pytest.raises(InvalidArgumentError, match="1200 parts"):
        generation({"messages": [message] * 6})


def test_a_model_of_null_is_the_default_model():
    assert parse(b'{"model": null, "messages": []}', ChatRequest).model is None


def schema(value: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": value}}


def test_a_schema_goes_on_as_it_was_written():
    body = b'{"messages":[{"role":"user","content":"Hi"}],"response_format":{"type":"json_schema",'
    body += b'"json_schema":{"schema":{"type" : "object"}}}}'
    request = openai_wire.generation_request(parse(body, ChatRequest), "g", "m", Caller("o"), 1.0)
    assert request.sampling.structured_output.json_schema == '{"type" : "object"}'


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"v": [0] * 100_000}, id="large"),
        pytest.param(nested(100), id="deep"),
        pytest.param([1], id="a list"),
    ],
)
def test_a_schema_is_bounded(value):
    with pytest.raises(InvalidArgumentError) as refused:
        generation({**HI, "response_format": schema(value)})
    assert refused.value.field == "response_format.json_schema.schema"


def test_calls_of_tools_in_the_history_say_that_they_are_not_built():
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    with pytest.raises(UnimplementedError, match="tool_calls"):
        generation({"messages": [message, *HI["messages"]]})
