import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_kit import examples

from services.tokenizer.reasoning_split import ReasoningSplitter

TAGS = ("<think>", "</think>")


def split(pieces: list[str], closed: bool = False) -> tuple[str, str]:
    splitter = ReasoningSplitter(TAGS, "<answer>", closed)
    outs = [splitter.push(piece) for piece in pieces] + [splitter.flush()]
    return "".join(thought for thought, _ in outs), "".join(answer for _, answer in outs)


TABLE = [
    pytest.param("<think>T</think>\n<answer>A", False, ("T", "A"), id="the-model-s-own-form"),
    pytest.param("<think>T</think>A", False, ("T", "A"), id="no-answer-tag"),
    pytest.param("<think>T</think>\n\n A b ", False, ("T", "A b "), id="space-before-the-answer"),
    pytest.param("just text", False, ("", "just text"), id="no-tags"),
    pytest.param("  just text", False, ("", "  just text"), id="no-tags-but-space"),
    pytest.param("  \n", False, ("", "  \n"), id="only-space"),
    pytest.param(" <think>T</think>A", False, ("T", "A"), id="space-before-the-thought"),
    pytest.param("<answer>A", False, ("", "A"), id="no-thought"),
    pytest.param("<think>T<answer>A", False, ("T", "A"), id="thought-never-closed"),
    pytest.param("<think>T", False, ("T", ""), id="cut-inside-the-thought"),
    pytest.param("<think>T</thi", False, ("T</thi", ""), id="cut-inside-the-closing-tag"),
    pytest.param("<thi", False, ("", "<thi"), id="cut-inside-the-opening-tag"),
    pytest.param("<think>T</think> <ans", False, ("T", "<ans"), id="cut-inside-the-answer-tag"),
    pytest.param("<think>a<b</think>A", False, ("a<b", "A"), id="a-bracket-in-the-thought"),
    pytest.param("A<think>x</think>", False, ("", "A<think>x</think>"), id="tags-inside-an-answer"),
    pytest.param(
        "<think><think>T</think>\n<answer></think><answer>A", False, ("T", "A"), id="doubled-tags"
    ),
    pytest.param("\n<answer>A", True, ("", "A"), id="closed-in-the-prompt"),
    pytest.param("A", True, ("", "A"), id="closed-and-plain"),
    pytest.param("<think>T</think>A", True, ("T", "A"), id="closed-but-it-thinks-anyway"),
    pytest.param("<think></think><answer>A", False, ("", "A"), id="empty-thought"),
    pytest.param("", False, ("", ""), id="nothing"),
]


@pytest.mark.parametrize(("text", "closed", "expected"), TABLE)
def test_thought_and_answer_come_apart_without_their_tags(
    text: str, closed: bool, expected: tuple[str, str]
) -> None:
    assert split([text], closed) == expected


@pytest.mark.parametrize(("text", "closed", "expected"), TABLE)
def test_tags_may_be_cut_at_every_character(
    text: str, closed: bool, expected: tuple[str, str]
) -> None:
    assert split(list(text), closed) == expected


@given(
    st.lists(st.sampled_from([*TAGS, "<answer>", " ", "\n", "a", "<", "</", "think>", "答"])),
    st.data(),
    st.booleans(),
)
@examples(100)
def test_the_outcome_does_not_depend_on_how_the_text_was_cut(
    pieces: list[str], data: st.DataObject, closed: bool
) -> None:
    text = "".join(pieces)
    cut = data.draw(st.integers(0, len(text)))
    assert split([text[:cut], text[cut:]], closed) == split(list(text), closed)


def test_thought_is_told_while_it_comes_and_not_at_its_end() -> None:
    splitter = ReasoningSplitter(TAGS, "<answer>", thinking_closed=False)
    assert splitter.push("<think>red") == ("red", "")
    assert splitter.push(" button</think>") == (" button", "")
    assert splitter.push("\n<answer>do") == ("", "do")
    assert splitter.push("(") == ("", "(")
