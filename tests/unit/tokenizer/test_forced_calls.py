"""Calls that a grammar holds."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_kit import examples

from services.tokenizer.forced_calls import (
    NamedCallReader,
    RequiredCallsReader,
    call_readers,
)
from services.tokenizer.tool_calls import CallPiece, CallReader, Choice, ToolUse, joined


def read(reader: CallReader, *pieces: str) -> list[CallPiece]:
    """The calls, their pieces joined; the ids, which are at random, left out."""
    calls: list[CallPiece] = []
    for piece in pieces:
        cut = reader.push(piece, [])
        assert not cut.text
        calls = list(joined(calls, cut.calls))
    assert all(call.id.startswith("call_") for call in calls)
    assert len({call.id for call in calls}) == len(calls)
    return [replace(call, id="") for call in calls]


TEXT = st.text(max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda value: st.lists(value, max_size=3) | st.dictionaries(TEXT, value, max_size=3),
    max_leaves=4,
)
PARAMETERS = st.dictionaries(TEXT, VALUES, max_size=3)
CALLS = st.lists(st.tuples(st.text(min_size=1, max_size=8), PARAMETERS), min_size=1, max_size=3)


@given(CALLS, st.sampled_from([None, 1]), st.integers(1, 9))
@examples(100)
def test_the_calls_of_an_array_are_the_same_however_it_is_cut(
    wanted: list[tuple[str, dict[str, object]]], indent: int | None, size: int
) -> None:
    text = json.dumps([{"name": n, "parameters": p} for n, p in wanted], indent=indent)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    calls = read(RequiredCallsReader(), *pieces)
    assert [(call.index, call.name, json.loads(call.arguments)) for call in calls] == [
        (index, name, parameters) for index, (name, parameters) in enumerate(wanted)
    ]


def test_arguments_stream_as_they_come() -> None:
    reader = RequiredCallsReader()
    reader.push('[{"name": "f", "parameters": {"a"', [])
    assert reader.push(': "b c', []).calls == [CallPiece(0, arguments=': "b c')]


def test_half_an_array_has_the_calls_that_it_has() -> None:
    calls = read(RequiredCallsReader(), '[{"name": "f", "parameters": {"a": [1')
    assert calls == [CallPiece(0, name="f", arguments='{"a": [1')]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("no JSON", id="words"),
        pytest.param('{"name": "f", "parameters": {}}', id="an object"),
        pytest.param("[1, 2]", id="numbers"),
        pytest.param('[{"name": "f"', id="a name only"),
        pytest.param('[{"name": 5, "parameters": {}}]', id="no name"),
        pytest.param("[[[]]]}}}", id="brackets"),
    ],
)
def test_what_is_no_array_of_calls_has_none(text: str) -> None:
    assert read(RequiredCallsReader(), *text) == []


def test_a_named_functions_whole_text_is_its_arguments() -> None:
    calls = read(NamedCallReader("f"), " ", '\n{"a"', ": 1}")
    assert calls == [CallPiece(0, name="f", arguments='{"a": 1}')]


def test_the_choice_of_tools_says_who_reads() -> None:
    automatic = RequiredCallsReader()
    readers = call_readers(lambda use: automatic)
    assert readers(ToolUse([])) is automatic
    assert isinstance(readers(ToolUse([], Choice.REQUIRED)), RequiredCallsReader)
    assert readers(ToolUse([], Choice.REQUIRED)) is not automatic
    assert isinstance(readers(ToolUse([], Choice.NAMED, "f")), NamedCallReader)
