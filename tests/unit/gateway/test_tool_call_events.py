"""Pieces of tool calls between the tokenizer and a client: merged, kept apart, and told once."""

import msgspec
import pytest
from scripted import text_output

from services.gateway.choice import Choice
from services.gateway.events import ChoiceEnd, Finish, Numbered, Text, ToolCall, Usage
from services.gateway.interfaces import WorkerFinished
from services.gateway.mailbox import Mailbox
from services.gateway.openai_response import AnswerBuilder, ChunkWriter
from services.gateway.told_calls import ToldCalls
from services.gateway.wire import event


def begins(index: int, arguments: str = "", choice: int = 0) -> ToolCall:
    return ToolCall(choice, index, f"call_{choice}_{index}", "f", arguments)


def more(index: int, arguments: str, choice: int = 0) -> ToolCall:
    return ToolCall(choice, index, arguments=arguments)


async def test_a_slow_reader_gets_neighbouring_pieces_of_one_call_as_one():
    mailbox = Mailbox()
    for piece in (
        Text(0, "a"),
        begins(0),
        more(0, "{"),
        more(0, "}"),
        begins(1, "{"),
        more(1, "}"),
    ):
        mailbox.put(piece)
    mailbox.put(begins(0, choice=1))
    mailbox.put(more(0, "x"))
    assert [numbered.event for numbered in await mailbox.take()] == [
        Text(0, "a"),
        begins(0, "{}"),
        begins(1, "{}"),
        begins(0, choice=1),
        more(0, "x"),
    ]


class Heard:
    """See ChoiceListener."""

    def first_token(self) -> None:
        pass

    def take(self, index: int, output: object) -> None:
        pass


@pytest.mark.parametrize(
    ("end", "worker", "reason"),
    [
        pytest.param({"end_tag": True}, None, Finish.TOOL_CALLS, id="by its end token"),
        pytest.param({"stop_match": "x"}, None, Finish.TOOL_CALLS, id="by a stop string"),
        pytest.param({}, Finish.STOP, Finish.TOOL_CALLS, id="by the worker's end"),
        pytest.param({}, Finish.LENGTH, Finish.LENGTH, id="by its length"),
        pytest.param({}, Finish.TIME_LIMIT, Finish.TIME_LIMIT, id="by its time"),
    ],
)
def test_an_output_with_calls_that_ends_by_itself_ends_for_them(end, worker, reason):
    choice = Choice(0, Heard())
    choice.take(text_output(calls=[begins(0)]))
    if worker is not None:
        choice.worker_ended(WorkerFinished(0, worker, None, 5))
    choice.take(text_output(finished=True, **end))
    assert choice.end is not None
    assert choice.end.reason is reason


def test_an_output_without_calls_ends_as_ever():
    choice = Choice(0, Heard())
    choice.take(text_output("a"))
    choice.take(text_output(finished=True, end_tag=True))
    assert choice.end == ChoiceEnd(0, Finish.STOP)


def test_a_rebuilt_text_tells_only_what_is_new_of_its_calls():
    calls = ToldCalls()
    calls.new([begins(0, '{"a"')])
    calls.again()
    again = ToolCall(0, 0, "another id", "f", '{"')
    assert calls.new([again]) == []
    assert calls.new([more(0, 'a": 1}'), begins(1, "{")]) == [more(0, ": 1}"), begins(1, "{")]
    calls.again()
    assert calls.new([begins(0, '{"a": 1}'), begins(1, "{}")]) == [more(1, "}")]


def test_a_call_without_arguments_yet_is_not_begun_twice():
    calls = ToldCalls()
    calls.new([begins(0)])
    calls.again()
    assert calls.new([begins(0)]) == []
    assert calls.new([more(0, "{}")]) == [more(0, "{}")]


def test_the_whole_answer_has_the_calls_in_order():
    answer = AnswerBuilder("id", 1, "m", 1)
    for piece in (begins(0, "{"), begins(1, "["), more(0, "}"), more(1, "]")):
        answer.tool_call(piece)
    made = answer.build([ChoiceEnd(0, Finish.TOOL_CALLS)], Usage())
    body = msgspec.to_builtins(made)["choices"][0]
    assert body["finish_reason"] == "tool_calls"
    assert body["message"] == {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "call_0_0", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"id": "call_0_1", "type": "function", "function": {"name": "f", "arguments": "[]"}},
        ],
    }


def test_a_streams_first_piece_has_everything_and_later_ones_their_arguments():
    writer = ChunkWriter("id", 1, "m")

    def delta(piece: ToolCall) -> object:
        data = writer.tool_call(piece).removeprefix(b"data: ")
        return msgspec.json.decode(data)["choices"][0]["delta"]

    first = {"index": 0, "id": "call_0_0", "type": "function"}
    assert delta(begins(0)) == {
        "role": "assistant",
        "tool_calls": [{**first, "function": {"name": "f", "arguments": ""}}],
    }
    assert delta(more(0, "{")) == {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}


def test_native_clients_get_the_piece():
    message = event(Numbered(7, begins(1, "{", choice=2)))
    assert (message.sequence, message.choice_index) == (7, 2)
    call = message.tool_call
    assert (call.index, call.id, call.name, call.arguments) == (1, "call_2_1", "f", "{")
