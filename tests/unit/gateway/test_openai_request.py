"""Chat request bodies: what is accepted, and how every refusal names the field, the value and the limit."""

import itertools
import json
from typing import Any

import pytest

from services.gateway import openai_wire
from services.gateway.caller import Caller
from services.gateway.interfaces import GenerationRequest
from services.gateway.json_body import parse
from services.gateway.openai_request import ChatRequest
from services.runtime.errors import InvalidArgumentError, ServiceError

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


def nested(depth: int) -> Any:
    tree: Any = "x"
    for _ in range(depth):
        tree = {"a": tree}
    return tree


def schema(value: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": value}}


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
    ("response_format", schema([1]), "response_format.json_schema.schema"),
    ("response_format", schema(None), "response_format.json_schema.schema"),
    ("response_format", {"type": "json_schema", "json_schema": {}}, "response_format.json_schema"),
    ("guided_json", "{", "guided_json"),
    ("guided_json", {"v": "x" * 16_384}, "guided_json"),
    ("guided_json", nested(33), "guided_json"),
    ("guided_regex", "", "guided_regex"),
    ("guided_regex", "x" * 4_097, "guided_regex"),
    ("guided_grammar", "x" * 8_193, "guided_grammar"),
    ("guided_grammar", {}, "guided_grammar"),
    ("guided_choice", [], "guided_choice"),
    ("guided_choice", ["x"] * 257, "guided_choice"),
    ("guided_choice", ["x", "é" * 513], "guided_choice[1]"),
    ("guided_choice", "x", "guided_choice"),
    ("structured_outputs", {}, "structured_outputs"),
    ("structured_outputs", {"structural_tag": "x"}, "structured_outputs"),
    ("structured_outputs", {"json_object": False}, "structured_outputs"),
    ("structured_outputs", {"json": "["}, "structured_outputs.json"),
    ("structured_outputs", {"choice": [""]}, "structured_outputs.choice[0]"),
    ("structured_outputs", {"regex": 5}, "structured_outputs.regex"),
    ("stop_token_ids", [5, -1], "stop_token_ids[1]"),
    ("stop_token_ids", [5] * 65, "stop_token_ids"),
    ("stop_token_ids", 5, "stop_token_ids"),
    ("top_logprobs", 5, "top_logprobs"),
    ("top_logprobs", 21, "top_logprobs"),
    ("logprobs", 5, "logprobs"),
    ("user", "é" * 257, "user"),
    ("extra_body", {"top_k": "many"}, "extra_body.top_k"),
    ("extra_body", {"min_p": 2}, "extra_body.min_p"),
    ("extra_body", [], "extra_body"),
    (
        "extra_body",
        {"chat_template_kwargs": {"return_reasoning": 1}},
        "extra_body.chat_template_kwargs.return_reasoning",
    ),
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
        pytest.param(b'{"messages": NaN, ', id="NaN in a body that is cut"),
        pytest.param(b"NaN", id="NaN alone"),
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


def test_logprobs_are_those_of_so_many_tokens():
    assert not generation(HI).sampling.HasField("logprobs")
    assert generation({**HI, "logprobs": True}).sampling.HasField("logprobs")
    assert generation({**HI, "logprobs": True, "top_logprobs": 3}).sampling.logprobs == 3


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


@pytest.mark.parametrize(
    ("body", "param"),
    [
        pytest.param('"temperature": NaN', "temperature", id="NaN"),
        pytest.param('"top_p": -Infinity', "top_p", id="minus infinity"),
        pytest.param('"extra_body": {"min_p": Infinity}', "extra_body.min_p", id="nested"),
        pytest.param('"logit_bias": {"5": NaN}', "logit_bias.5", id="in an object"),
        pytest.param('"stop": ["a", NaN]', "stop[1]", id="in a list"),
        pytest.param('"unknown": {"x": [NaN]}', "unknown.x[0]", id="in an unknown field"),
    ],
)
def test_numbers_that_json_does_not_have_are_refused_by_name(body, param):
    text = f'{{"messages": [{{"role": "user", "content": "NaN: 1"}}], {body}}}'
    with pytest.raises(InvalidArgumentError) as refused:
        parse(text.encode(), ChatRequest)
    assert refused.value.field == param
    assert refused.value.metadata["value"] in ("nan", "inf", "-inf")


@pytest.mark.parametrize(
    ("field", "raw"),
    [
        pytest.param("chat_template_kwargs", b'{"v": 1e400}', id="a number that no double holds"),
        pytest.param("chat_template_kwargs", b'{"v": "\xff"}', id="bytes that are no UTF-8"),
        pytest.param("stop", b'"\xed\xa0\x80"', id="a surrogate in bytes"),
        pytest.param("guided_json", b'{"v": "\xff"}', id="a schema that is no UTF-8"),
        pytest.param("guided_choice", b'["\xff"]', id="a choice that is no UTF-8"),
        pytest.param("logit_bias", b'{"5": 1e400}', id="a bias that no double holds"),
    ],
)
def test_what_the_parser_skips_over_is_refused_when_it_is_read(field, raw):
    body = b'{"messages": [{"role": "user", "content": "Hi"}], "' + field.encode() + b'": ' + raw
    with pytest.raises(InvalidArgumentError) as refused:
        generation_of(body + b"}")
    assert refused.value.field.startswith(field)


def generation_of(body: bytes) -> GenerationRequest:
    chat = parse(body, ChatRequest)
    return openai_wire.generation_request(chat, "g", "m", Caller("o"), 1.0)


FORMS = {
    "response_format": {"type": "json_object"},
    "structured_outputs": {"regex": "a+"},
    "guided_json": {"type": "object"},
    "guided_regex": "a+",
    "guided_choice": ["a"],
    "guided_grammar": 'root ::= "a"',
}


@pytest.mark.parametrize(("first", "second"), [*itertools.combinations(FORMS, 2)])
def test_two_constraints_are_refused_and_both_are_named(first, second):
    with pytest.raises(InvalidArgumentError) as refused:
        generation({**HI, first: FORMS[first], second: FORMS[second]})
    assert refused.value.field.startswith(second)
    assert first in refused.value.message


def test_two_constraints_in_one_object_are_refused_and_both_are_named():
    with pytest.raises(InvalidArgumentError) as refused:
        generation({**HI, "structured_outputs": {"regex": "a", "grammar": "b"}})
    assert refused.value.message == (
        "structured_outputs.grammar: 'set' is not allowed; must be absent where "
        "structured_outputs.regex is set: at most one constraint on the output."
    )


def test_two_constraints_in_two_places_are_refused_and_both_are_named():
    body = {**HI, "guided_regex": "a", "extra_body": {"guided_choice": ["a"]}}
    with pytest.raises(InvalidArgumentError, match=r"extra_body\.guided_choice.* guided_regex "):
        generation(body)


def test_a_format_of_text_is_no_constraint():
    body = {**HI, "response_format": {"type": "text"}, "guided_regex": "a+"}
    assert generation(body).sampling.structured_output.regex == "a+"
    assert not generation({**HI, "response_format": {"type": "text"}}).sampling.HasField(
        "structured_output"
    )


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"guided_json": '{"type" : "object"}'}, id="guided_json in a string"),
        pytest.param({"structured_outputs": {"json": {"type": "object"}}}, id="json"),
        pytest.param({"response_format": schema({"type": "object"})}, id="response_format"),
        pytest.param({"extra_body": {"guided_json": {"type": "object"}}}, id="nested"),
    ],
)
def test_every_name_of_a_schema_means_the_same(fields):
    text = generation({**HI, **fields}).sampling.structured_output.json_schema
    assert json.loads(text) == {"type": "object"}


@pytest.mark.parametrize(
    ("fields", "ours", "theirs"),
    [
        pytest.param(
            {"guided_grammar": "x"}, "structured_output.grammar", "guided_grammar", id="guided"
        ),
        pytest.param(
            {"response_format": schema({})},
            "structured_output.json_schema",
            "response_format.json_schema.schema",
            id="response_format",
        ),
        pytest.param(
            {"structured_outputs": {"choice": ["a"]}},
            "structured_output.choice.values",
            "structured_outputs.choice",
            id="choices",
        ),
        pytest.param(
            {"max_completion_tokens": 5}, "max_tokens", "max_completion_tokens", id="newer"
        ),
        pytest.param({"extra_body": {"top_k": 5}}, "top_k", "extra_body.top_k", id="nested"),
    ],
)
def test_a_generation_knows_what_its_client_called_a_field(fields, ours, theirs):
    assert generation({**HI, **fields}).field_names[f"sampling.{ours}"] == theirs


def test_the_newer_name_of_max_tokens_wins():
    request = generation({**HI, "max_tokens": 5, "max_completion_tokens": 7})
    assert (request.max_tokens, request.sampling.max_tokens) == (7, 7)


def test_top_level_wins_over_a_nested_extra_body():
    body = {**HI, "top_k": 5, "extra_body": {"top_k": 7, "min_tokens": 3}}
    assert (generation(body).sampling.top_k, generation(body).sampling.min_tokens) == (5, 3)


def test_variables_of_both_places_go_together_and_the_outer_ones_win():
    inner = {"chat_template_kwargs": {"a": 1, "b": 2}}
    body = {**HI, "chat_template_kwargs": {"a": 3}, "extra_body": inner}
    variables = generation(body).render_options.template_variables
    assert dict(variables) == {"a": 3, "b": 2}


def test_no_alternatives_may_be_asked_for_without_log_probabilities():
    assert not generation({**HI, "top_logprobs": 0}).sampling.HasField("logprobs")


def test_what_other_servers_know_and_this_one_does_not_use_is_accepted():
    generation(
        {**HI, "store": True, "metadata": {"a": 1}, "service_tier": "auto", "user": "u" * 512}
        | {"parallel_tool_calls": False, "guided_decoding_backend": 5}
    )


@pytest.mark.parametrize(
    ("least", "fields", "told"),
    [
        pytest.param(5, {"max_tokens": 5}, "", id="as many"),
        pytest.param(6, {"max_tokens": 5}, "max_tokens, 5", id="one more"),
        pytest.param(6, {"max_tokens": 5, "max_completion_tokens": 7}, "", id="newer name larger"),
        pytest.param(
            6,
            {"max_tokens": 9, "max_completion_tokens": 5},
            "max_completion_tokens, 5",
            id="newer name smaller",
        ),
    ],
)
def test_min_tokens_are_held_against_the_name_that_wins(least, fields, told):
    body = {**HI, **fields, "min_tokens": least}
    if not told:
        assert generation(body).sampling.min_tokens == least
        return
    with pytest.raises(InvalidArgumentError) as refused:
        generation(body)
    assert (refused.value.field, refused.value.metadata["limit"]) == (
        "min_tokens",
        f"at most {told}",
    )
