"""Tool calls of a conversation's history."""

import json

import msgspec
import pytest

from services.gateway.json_body import parse
from services.gateway.openai_request import ChatRequest
from services.gateway.openai_wire import conversation
from services.gateway.past_calls import read_calls
from services.runtime.errors import InvalidArgumentError

FIELD = "messages[1].tool_calls"


def call(arguments: object = "{}", **fields: object) -> dict[str, object]:
    function = {"name": "tap", "arguments": arguments}
    return {"id": "call_1", "type": "function", "function": function, **fields}


def read(*calls: object) -> list[object]:
    return list(read_calls(FIELD, msgspec.Raw(msgspec.json.encode(calls))))


@pytest.mark.parametrize(
    ("arguments", "read_as"),
    [
        pytest.param('{"on": true, "at": [1, {"x": 2.5}]}', {"on": True, "at": [1, {"x": 2.5}]}, id="object"),
        pytest.param("", {}, id="nothing"),
        pytest.param("  {} ", {}, id="white space"),
    ],
)  # fmt: skip
def test_arguments_are_an_object_in_a_string(arguments, read_as):
    (made,) = read_calls(FIELD, msgspec.Raw(msgspec.json.encode([call(arguments)])))
    assert (made.id, made.name, made.arguments) == ("call_1", "tap", read_as)


@pytest.mark.parametrize(
    ("made", "field"),
    [
        pytest.param(call("[1]"), "[0].function.arguments", id="a list"),
        pytest.param(call("{"), "[0].function.arguments", id="half an object"),
        pytest.param(call("{} {}"), "[0].function.arguments", id="two objects"),
        pytest.param(call('{"a": 1e999}'), "[0].function.arguments", id="a huge number"),
        pytest.param(call('{"a":' * 40 + "1" + "}" * 40), "[0].function.arguments", id="deep"),
        pytest.param(call(id=""), "[0].id", id="an empty id"),
        pytest.param(call(id="x" * 129), "[0].id", id="a long id"),
        pytest.param(call(function={"name": "", "arguments": ""}), "[0].function.name", id="name"),
        pytest.param(call({"on": True}), "", id="arguments that are no string"),
        pytest.param(call(type="custom"), "", id="another type"),
        pytest.param({"id": "1"}, "", id="no function"),
        pytest.param(5, "", id="a number"),
    ],
)
def test_what_is_no_call_is_refused_by_its_path(made, field):
    with pytest.raises(InvalidArgumentError) as refused:
        read(made)
    assert refused.value.field == FIELD + field


def test_calls_are_counted():
    assert len(read(*[call()] * 64)) == 64
    with pytest.raises(InvalidArgumentError, match="at most 64 calls"):
        read(*[call()] * 65)


def messages(*made: dict[str, object]) -> list[object]:
    body = json.dumps({"messages": made}).encode()
    return list(conversation(parse(body, ChatRequest)).messages)


def test_a_conversation_with_calls_and_their_answers_goes_to_the_tokenizer():
    asked, told = messages(
        {"role": "assistant", "content": None, "tool_calls": [call('{"on": true}')]},
        {"role": "tool", "tool_call_id": "call_1", "content": "done"},
    )
    (made,) = asked.tool_calls
    assert (asked.text, made.id, made.name, dict(made.arguments)) == ("", "call_1", "tap", {"on": True})  # fmt: skip
    assert (told.tool_call_id, told.text) == ("call_1", "done")


@pytest.mark.parametrize("none", [None, []])
def test_a_message_without_calls_may_say_so(none):
    (message,) = messages({"role": "assistant", "content": "a", "tool_calls": none})
    assert not message.tool_calls


def test_a_broken_call_is_named_with_its_message():
    with pytest.raises(InvalidArgumentError) as refused:
        messages({"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [call("x")]})
    assert refused.value.field == f"{FIELD}[0].function.arguments"
