"""Tool calls cut out of a text, with vLLM's own parsers."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hotline.v1 import generation_pb2
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_kit import examples
from tool_model import TAP, TWO_CALLS, WEATHER

from services.tokenizer.forced_calls import call_readers
from services.tokenizer.model_folder import ModelFolder
from services.tokenizer.output_text import OutputFormat, OutputOptions, OutputText, Piece
from services.tokenizer.tool_calls import (
    CallPiece,
    CallReader,
    CallsUnreadableError,
    Choice,
    Cut,
    ToolUse,
)
from services.tokenizer.vllm_tool_parser import VllmToolParser

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what vLLM imports
USE = ToolUse([WEATHER, TAP])
Read = Callable[..., Piece]
GLM_CALL = (
    "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Köln</arg_value>\n"
    "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>"
)


@pytest.fixture(scope="module")
def parsers(folder: ModelFolder) -> dict[str, VllmToolParser]:
    return {name: VllmToolParser(name, folder.backend) for name in ("hermes", "glm45")}


@pytest.fixture(scope="module")
def read(
    folder: ModelFolder, output_format: OutputFormat, parsers: dict[str, VllmToolParser]
) -> Read:
    """The whole of a text, given in ids, so many at a time."""

    def read(
        text: str, at_once: int = 1, use: ToolUse = USE, parser: str = "hermes", **options: Any
    ) -> Piece:
        form = replace(output_format, open_calls=call_readers(parsers[parser].open))
        output = OutputText(form, OutputOptions(tools=use, **options))
        ids = folder.backend.encode(text, add_special_tokens=False).ids
        whole = Piece()
        for at in range(0, len(ids), at_once):
            whole.append(output.push(ids[at : at + at_once]))
        if not whole.finished:
            whole.append(output.end())
        return whole

    return read


def calls(piece: Piece) -> list[tuple[int, str, Any]]:
    assert all(call.id for call in piece.calls)
    return [(call.index, call.name, json.loads(call.arguments)) for call in piece.calls]


def test_calls_are_cut_out_and_what_stands_before_them_is_text(read: Read) -> None:
    piece = read(TWO_CALLS)
    assert piece.text == "Well. "
    assert calls(piece) == [
        (0, "get_weather", {"city": "Köln", "days": 3}),
        (1, "tap", {"on": True}),
    ]
    assert piece.finished


def test_glms_own_style_is_read_by_its_own_parser(read: Read) -> None:
    piece = read(f"Well. {GLM_CALL}", parser="glm45")
    assert piece.text == "Well. "
    assert calls(piece) == [(0, "get_weather", {"city": "Köln", "days": 3})]


@given(st.integers(1, 60), st.sampled_from([("hermes", TWO_CALLS), ("glm45", GLM_CALL)]))
@examples(20)
def test_how_the_ids_come_changes_nothing(read: Read, at_once: int, case: tuple[str, str]) -> None:
    parser, text = case
    cut, whole = read(text, at_once, parser=parser), read(text, 1, parser=parser)
    assert (cut.text, calls(cut)) == (whole.text, calls(whole))


@pytest.mark.parametrize(
    ("text", "parser"),
    [
        pytest.param("Just words.", "hermes", id="no call"),
        pytest.param("1 <tool_call 2", "hermes", id="half a tag"),
        pytest.param("See <tool_call>\nnothing like it</tool_call> there", "hermes", id="no JSON"),
        pytest.param("A <tool_call> is a thing", "hermes", id="a tag as a word"),
        pytest.param("A <tool_call>", "glm45", id="an open tag"),
    ],
)
def test_what_is_no_call_stays_text(read: Read, text: str, parser: str) -> None:
    piece = read(text, parser=parser)
    assert (piece.text, piece.calls) == (text, ())


def test_half_a_call_is_told_as_far_as_it_came(read: Read) -> None:
    piece = read('<tool_call>\n{"name": "tap", "arguments": {"on": tr')
    (call,) = piece.calls
    assert (piece.text, call.name, call.arguments) == ("", "tap", '{"on": tr')


def test_arguments_stream_before_the_call_is_whole(
    folder: ModelFolder, output_format: OutputFormat, parsers: dict[str, VllmToolParser]
) -> None:
    form = replace(output_format, open_calls=parsers["hermes"].open)
    output = OutputText(form, OutputOptions(tools=USE))
    text = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Kö'
    piece = output.push(folder.backend.encode(text, add_special_tokens=False).ids)
    assert piece.is_news
    assert [(call.name, call.arguments) for call in piece.calls] == [
        ("get_weather", '{"city": "Kö')
    ]


def test_a_thought_that_is_split_off_calls_nothing(read: Read) -> None:
    piece = read(f"<think>I could {GLM_CALL}</think>{TWO_CALLS}", split_reasoning=True)
    assert piece.reasoning == f"I could {GLM_CALL}"
    assert len(piece.calls) == 2


def test_a_stop_string_inside_a_call_ends_it(read: Read) -> None:
    piece = read(TWO_CALLS, stop=("days",))
    assert piece.stop_match == "days"
    assert [call.arguments for call in piece.calls] == ['{"city": "Köln", "']


@pytest.mark.parametrize(
    ("use", "text", "name"),
    [
        pytest.param(replace(USE, choice=Choice.NAMED, function="tap"), '{"on": true}', "tap", id="named"),
        pytest.param(
            replace(USE, choice=Choice.REQUIRED),
            '[{"name": "tap", "parameters": {"on": true}}]',
            "tap",
            id="required",
        ),
    ],
)  # fmt: skip
def test_a_forced_call_is_read_as_the_grammar_writes_it(
    read: Read, use: ToolUse, text: str, name: str
) -> None:
    piece = read(text, use=use)
    assert (piece.text, calls(piece)) == ("", [(0, name, {"on": True})])


class Broken:
    """See CallReader: fails at an exclamation mark."""

    def push(self, text: str, token_ids: Sequence[int]) -> Cut:
        if "!" in text:
            raise CallsUnreadableError
        return Cut(calls=(CallPiece(0, "1", "f"),)) if "?" in text else Cut()

    def end(self) -> Cut:
        return Cut()


def broken(use: ToolUse) -> CallReader:
    return Broken()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("held back, and! all the rest", "held back, and! all the rest", id="all text"),
        pytest.param("a call? lost! rest", "! rest", id="after a call"),
    ],
)
def test_a_reader_that_fails_leaves_the_text_as_text(
    folder: ModelFolder, output_format: OutputFormat, text: str, shown: str
) -> None:
    output = OutputText(replace(output_format, open_calls=broken), OutputOptions(tools=USE))
    piece = Piece()
    for token_id in folder.backend.encode(text, add_special_tokens=False).ids:
        piece.append(output.push([token_id]))
    piece.append(output.end())
    assert piece.text.endswith(shown.split("!")[-1])
    assert ("?" in text) or piece.text == shown


@pytest.mark.parametrize(
    ("parser", "text", "told"),
    [
        pytest.param("hermes", TWO_CALLS, "Well. ", id="before calls"),
        pytest.param("glm45", f"Well. {GLM_CALL} Then more.", "Well. ", id="before and after"),
        pytest.param("hermes", "1 <tool_call 2 <tool_", "1 <tool_call 2 <tool_", id="held back"),
    ],
)
def test_log_probabilities_are_those_of_the_text_before_calls(
    folder: ModelFolder,
    output_format: OutputFormat,
    parsers: dict[str, VllmToolParser],
    parser: str,
    text: str,
    told: str,
) -> None:
    form = replace(output_format, open_calls=parsers[parser].open)
    output = OutputText(form, OutputOptions(tools=USE))
    piece = Piece()
    for token_id in folder.backend.encode(text, add_special_tokens=False).ids:
        one = generation_pb2.PositionLogprobs(
            sampled=generation_pb2.TokenLogprob(token_id=token_id, logprob=-1)
        )
        piece.append(output.push([token_id], [one]))
    piece.append(output.end())
    assert b"".join(one.sampled.token for one in piece.logprobs).decode() == told


def test_special_tokens_are_text_where_they_could_be_tags_of_calls(
    folder: ModelFolder, output_format: OutputFormat, parsers: dict[str, VllmToolParser], read: Read
) -> None:
    text = "a<|begin_of_audio|>b"
    assert read(text).text == text
    assert read(text, use=None).text == "ab"


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"strict": "maybe"}, id="strict"),
        pytest.param({"description": None, "parameters": None}, id="nulls"),
        pytest.param({"parameters": {"properties": 5}}, id="properties that are a number"),
        pytest.param({"parameters": {"properties": {"on": 5}}}, id="a property that is one"),
        pytest.param({"parameters": {"properties": {"on": {"type": ["?", 5]}}}}, id="types"),
        pytest.param({"parameters": {"type": 5, "$defs": []}}, id="definitions"),
    ],
)
@pytest.mark.parametrize("parser", ["hermes", "glm45"])
def test_odd_tools_break_nothing(read: Read, odd: dict[str, Any], parser: str) -> None:
    use = ToolUse([{"type": "function", "function": {"name": "tap", **odd}}])
    glm = "<tool_call>tap\n<arg_key>on</arg_key>\n<arg_value>true</arg_value>\n</tool_call>"
    text = {
        "hermes": '<tool_call>{"name": "tap", "arguments": {"on": 1}}</tool_call>',
        "glm45": glm,
    }
    piece = read(text[parser], use=use, parser=parser)
    assert piece.finished
    assert piece.text == text[parser] or piece.calls[0].name == "tap"


def test_a_process_without_a_parser_says_so(output_format: OutputFormat) -> None:
    with pytest.raises(ValueError, match="tool_parser"):
        OutputText(output_format, OutputOptions(tools=USE))


def test_an_unknown_parser_is_refused_with_the_known_ones(folder: ModelFolder) -> None:
    with pytest.raises(ValueError, match=r"tool_parser 'hermas': must be one of .*hermes"):
        VllmToolParser("hermas", folder.backend)


def test_a_parser_for_another_vocabulary_is_refused(folder: ModelFolder) -> None:
    with pytest.raises(ValueError, match="does not fit this model"):
        VllmToolParser("llama3_json", folder.backend)


def test_tools_that_vllm_does_not_take_are_a_value_error(
    parsers: dict[str, VllmToolParser],
) -> None:
    with pytest.raises(ValueError, match="name"):
        parsers["hermes"].open(ToolUse([{"type": "function", "function": {}}]))
