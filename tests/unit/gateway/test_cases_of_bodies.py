"""Cases 2 and 12 to 18 of cases.md, as far as the body of a chat request decides them: field, value and limit are told."""

import json
from typing import Any

import pytest

from services.gateway import openai_wire
from services.gateway.caller import Caller
from services.gateway.interfaces import GenerationRequest
from services.gateway.json_body import parse
from services.gateway.openai_request import ChatRequest
from services.runtime.errors import InvalidArgumentError


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def generation(body: bytes) -> GenerationRequest:
    chat = parse(body, ChatRequest)
    return openai_wire.generation_request(chat, "g", "m", Caller("o"), 1.0)


def asked(**fields: Any) -> GenerationRequest:
    return generation(json.dumps({"messages": [user("Hi")], **fields}).encode())


def refusal(**fields: Any) -> str:
    with pytest.raises(InvalidArgumentError) as refused:
        asked(**fields)
    return refused.value.message


def test_case_2_doubled_tags_of_past_turns_pass_as_they_stand():
    turn = '<think><think>a</think>\n<answer></think><answer>do(action="Back")</answer>'
    history = [user([{"type": "text", "text": "go"}]), {"role": "assistant", "content": turn}]
    request = asked(messages=[*history, user("on")])
    assert [message.text for message in request.messages] == ["", turn, "on"]
    assert request.messages[0].parts.parts[0].text == "go"


@pytest.mark.parametrize(
    "token", ["<|image|>", "<|user|>", "<|assistant|>", "[gMASK]", "</answer>"]
)
def test_case_12_a_control_token_in_a_text_passes_as_text(token):
    request = asked(messages=[user(token), user([{"type": "text", "text": token}])])
    assert request.messages[0].text == request.messages[1].parts.parts[0].text == token
    assert not request.messages[1].parts.parts[0].HasField("image")


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        pytest.param([], "messages: '0 messages' is not allowed; must be 1 to 1024", id="none"),
        pytest.param(None, "messages: '0 messages' is not allowed; must be 1 to 1024", id="null"),
        pytest.param(
            [{"role": None, "content": "x"}],
            "messages[0].role: None is not allowed; must be a string, not null",
            id="null role",
        ),
        pytest.param(
            [user("x"), user([{"type": "text", "text": "x"}, {"type": "hologram"}])],
            "messages[1].content[1].type: 'hologram' is not allowed; must be text or image_url",
            id="unknown part",
        ),
        pytest.param(
            [user([{"text": "x"}])],
            "messages[0].content[0]: {'text': 'x'} is not allowed; must be an object with the field type",
            id="part without a type",
        ),
        pytest.param(
            [user(None)],
            "messages[0].content: None is not allowed; must be a string or a list of parts",
            id="no content",
        ),
    ],
)
def test_case_13_odd_messages_are_refused_by_path_value_and_limit(messages, told):
    assert refusal(messages=messages).startswith(told)


@pytest.mark.parametrize("content", ["", None, []])
def test_case_14_a_past_answer_may_be_empty(content):
    request = asked(messages=[user("Hi"), {"role": "assistant", "content": content}, user("on")])
    assert not request.messages[1].text


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize(
    ("value", "told"),
    [
        pytest.param(0, "0 is not allowed; must be at least 1.", id="0"),
        pytest.param(-1, "-1 is not allowed; must be at least 1.", id="-1"),
        pytest.param(1.5, "1.5 is not allowed; must be an integer, not a number.", id="1.5"),
        pytest.param("5", "'5' is not allowed; must be an integer, not a string.", id="text"),
        pytest.param(
            True, "True is not allowed; must be an integer, not true or false.", id="true"
        ),
    ],
)
def test_case_15_a_wrong_max_tokens_is_refused_by_the_name_it_was_given(name, value, told):
    assert refusal(**{name: value}) == f"{name}: {told}"


def test_case_15_absent_means_the_room_left_and_too_large_means_it_too():
    assert asked().max_tokens is None
    assert asked(max_tokens=None).max_tokens is None
    assert asked(max_tokens=10**9).max_tokens == 10**9  # the worker's room bounds it


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        pytest.param(
            {"temperature": -1},
            "temperature: -1.0 is not allowed; must be from 0 to 2.",
            id="below",
        ),
        pytest.param(
            {"temperature": float("nan")},
            "temperature: nan is not allowed; must be a number from 0 to 2.",
            id="NaN",
        ),
        pytest.param(
            {"top_p": 0}, "top_p: 0.0 is not allowed; must be above 0 and at most 1.", id="top_p 0"
        ),
        pytest.param(
            {"logprobs": True, "top_logprobs": 21},
            "top_logprobs: 21 is not allowed; must be from 0 to 20.",
            id="top_logprobs",
        ),
        pytest.param(
            {"top_logprobs": 5},
            'top_logprobs: 5 is not allowed; must be 0 or absent unless "logprobs" is true.',
            id="top_logprobs without logprobs",
        ),
        pytest.param(
            {"frequency_penalty": True},
            "frequency_penalty: True is not allowed; must be a number, not true or false.",
            id="a boolean for a number",
        ),
        pytest.param(
            {"seed": 2**63},
            "seed: 9223372036854775808 is not allowed; must be from -9223372036854775808 to "
            "9223372036854775807.",
            id="seed",
        ),
        pytest.param({"n": 0}, "n: 0 is not allowed; must be from 1 to 16.", id="n 0"),
        pytest.param(
            {"n": 10_000}, "n: 10000 is not allowed; must be from 1 to 16.", id="n 10,000"
        ),
        pytest.param(
            {"stop": ["x"] * 5_000},
            "stop: '5000 strings' is not allowed; must be at most 16 strings.",
            id="5,000 stop strings",
        ),
        pytest.param(
            {"stop": ["x"] * 10_000},
            "stop: '50000 bytes of JSON' is not allowed; must be at most 32768 bytes.",
            id="10,000 stop strings",
        ),
        pytest.param(
            {"stop": "x" * 257},
            f"stop[0]: '{'x' * 79}… is not allowed; must be 1 to 256 bytes of UTF-8.",
            id="a long stop string",
        ),
        pytest.param(
            {"logit_bias": {"5": -101}},
            "logit_bias[5]: -101.0 is not allowed; must be from -100 to 100.",
            id="bias",
        ),
        pytest.param(
            {"stream_options": {"include_usage": True}},
            "stream_options: 'set' is not allowed; must be absent unless \"stream\" is true.",
            id="stream_options without stream",
        ),
        pytest.param(
            {"temperature": 10**400},
            f"temperature: 1{'0' * 79}… is not allowed; must be a number from 0 to 2.",
            id="a number of 400 digits",
        ),
        pytest.param(
            {"response_format": {"type": "yaml"}},
            "response_format.type: 'yaml' is not allowed; must be text, json_object or json_schema.",
            id="response_format",
        ),
    ],
)
def test_case_16_a_parameter_out_of_range_is_refused_by_name_value_and_limit(fields, told):
    assert refusal(**fields) == told


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b'"\\ud800"', id="alone"),
        pytest.param(b'"a\\udc00b"', id="the second half"),
        pytest.param(b'"\xed\xa0\x80"', id="in bytes"),
    ],
)
@pytest.mark.parametrize(
    "field",
    [
        pytest.param(b'"messages":[{"role":"user","content":%b}]', id="a message"),
        pytest.param(
            b'"messages":[{"role":"user","content":"Hi"}],"stop":[%b]', id="a stop string"
        ),
        pytest.param(
            b'"messages":[{"role":"user","content":"Hi"}],"guided_regex":%b', id="a regex"
        ),
        pytest.param(
            b'"messages":[{"role":"user","content":"Hi"}],"chat_template_kwargs":{"v":%b}',
            id="a variable",
        ),
    ],
)
def test_case_18_a_lone_surrogate_is_refused(field, text):
    with pytest.raises(InvalidArgumentError) as refused:
        generation(b"{" + field % text + b"}")
    assert "surrogates" in refused.value.metadata["limit"]


@pytest.mark.parametrize("field", ["logit_bias", "tools", "guided_json", "stop"])
def test_json_of_any_depth_is_a_refusal_and_no_fault_of_ours(field):
    """Somewhere in between, the parser still takes what repr, or a second parse, does not."""
    for depth in range(800, 1_010):
        deep = f'["x",{"[" * depth}{"]" * depth}]'
        with pytest.raises(InvalidArgumentError) as refused:
            generation(
                f'{{"messages":[{{"role":"user","content":"Hi"}}],"{field}":{deep}}}'.encode()
            )
        assert refused.value.field in (field, "body")
