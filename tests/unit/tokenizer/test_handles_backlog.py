"""Work in slices: a text that is rebuilt from many ids does not hold up the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_kit import examples

from services.tokenizer.handles import (
    BACKLOG_SHARE_IDS,
    QUICK_IDS,
    SLICE_IDS,
    Act,
    Close,
    Handles,
    Open,
    Tokens,
)
from services.tokenizer.model_folder import ModelFolder
from services.tokenizer.output_text import OutputFormat, OutputOptions

OPEN = Open(OutputOptions())


@pytest.fixture
def handles(output_format: OutputFormat) -> Handles:
    return Handles(output_format, capacity=500)


@pytest.fixture
def letter(folder: ModelFolder) -> int:
    [token_id] = folder.backend.encode("a", add_special_tokens=False).ids
    return int(token_id)


def drained(handles: Handles) -> dict[int, str]:
    texts: dict[int, str] = {}
    while handles.waiting_ids:
        for output in handles.process([]):
            texts[output.handle] = texts.get(output.handle, "") + output.piece.text
    return texts


def test_one_slice_is_bounded_and_the_rest_follows(handles: Handles, letter: int) -> None:
    count = SLICE_IDS * 3 + 5
    [first] = handles.process([(1, OPEN), (1, Tokens([letter] * count, last=True))])
    assert 0 < len(first.piece.text) <= SLICE_IDS
    assert not first.piece.finished
    assert handles.waiting_ids == count - len(first.piece.text)
    assert first.piece.text + drained(handles)[1] == "a" * count
    assert len(handles) == 0


def test_ids_of_running_texts_go_before_a_backlog(handles: Handles, letter: int) -> None:
    running = range(100, 200)
    handles.process([(handle, OPEN) for handle in running])
    bulk: list[tuple[int, Act]] = []
    for handle in range(20):
        bulk += [(handle, OPEN), (handle, Tokens([letter] * SLICE_IDS))]
    handles.process(bulk)
    outputs = handles.process([(handle, Tokens([letter])) for handle in running])
    assert {output.handle for output in outputs} >= set(running)


def test_a_backlog_makes_progress_however_much_else_there_is(handles: Handles, letter: int) -> None:
    handles.process([(1, OPEN), (2, OPEN), (1, Tokens([letter] * SLICE_IDS * 2))])
    before = handles.waiting_ids
    flood: list[tuple[int, Act]] = [(2, Tokens([letter] * QUICK_IDS))] * (SLICE_IDS // QUICK_IDS)
    outputs = {output.handle: output.piece.text for output in handles.process(flood)}
    assert len(outputs[1]) == BACKLOG_SHARE_IDS
    assert before + SLICE_IDS - handles.waiting_ids == SLICE_IDS


def test_backlogs_take_turns(handles: Handles, letter: int) -> None:
    inputs: list[tuple[int, Act]] = [(handle, OPEN) for handle in range(8)]
    inputs += [(handle, Tokens([letter] * SLICE_IDS)) for handle in range(8)]
    shares: dict[int, int] = {}
    for _ in range(2):
        for output in handles.process(inputs):
            shares[output.handle] = shares.get(output.handle, 0) + len(output.piece.text)
        inputs = []
    assert len(shares) == 8
    assert max(shares.values()) <= BACKLOG_SHARE_IDS


def test_ids_that_follow_a_backlog_stay_behind_it(handles: Handles, letter: int) -> None:
    handles.process([(1, OPEN), (1, Tokens([letter] * SLICE_IDS * 2))])
    handles.process([(1, Tokens([letter + 1])), (1, Tokens([], last=True))])
    texts = drained(handles)
    assert texts[1].index("a") == 0
    assert texts[1].rstrip("a") != ""
    assert len(handles) == 0


def test_a_text_that_is_closed_takes_its_backlog_along(handles: Handles, letter: int) -> None:
    handles.process([(1, OPEN), (1, Tokens([letter] * SLICE_IDS * 50))])
    handles.process([(1, Close())])
    assert handles.waiting_ids == 0
    assert len(handles) == 0


def test_a_fault_in_a_backlog_is_told_once_and_hurts_nobody(handles: Handles, letter: int) -> None:
    bad = [letter] * SLICE_IDS + [10**6] + [letter] * SLICE_IDS
    handles.process([(1, OPEN), (2, OPEN)])
    errors, texts = [], ""
    inputs: list[tuple[int, Act]] = [(1, Tokens(bad)), (2, Tokens([letter] * SLICE_IDS))]
    while inputs or handles.waiting_ids:
        for output in handles.process(inputs):
            errors += [output.error] if output.error else []
            texts += output.piece.text if output.handle == 2 else ""
        inputs = []
    assert len(errors) == 1
    assert texts == "a" * SLICE_IDS


@examples(40)
@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, SLICE_IDS), st.booleans()),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 5),
)
def test_each_text_is_what_it_would_be_alone_however_it_was_sliced(
    output_format: OutputFormat, pushes: list[tuple[int, int, bool]], together: int
) -> None:
    handles = Handles(output_format, capacity=3)
    handles.process([(handle, OPEN) for handle in (1, 2, 3)])
    sent: dict[int, list[int]] = {1: [], 2: [], 3: []}
    texts = {1: "", 2: "", 3: ""}
    acts: list[tuple[int, Act]] = []
    for handle, count, _ in pushes:
        ids = [300 + (len(sent[handle]) + index) % 700 for index in range(count)]
        sent[handle] += ids
        acts.append((handle, Tokens(ids)))
    while acts or handles.waiting_ids:
        batch, acts = acts[:together], acts[together:]
        for output in handles.process(batch):
            texts[output.handle] += output.piece.text
    for handle, ids in sent.items():
        alone = Handles(output_format, capacity=1)
        alone.process([(9, OPEN)])
        expected = ""
        for token_id in ids:
            expected += "".join(o.piece.text for o in alone.process([(9, Tokens([token_id]))]))
        assert texts[handle] == expected
