import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_kit import examples

from services.tokenizer.stops import StopMatcher


def stream(
    patterns: list[str], pieces: list[str], tags: tuple[str, ...] = ()
) -> tuple[list[str], str | None]:
    """What was shown after each piece and at the end, and the match."""
    matcher, shown = StopMatcher(patterns, tags), []
    for piece in pieces:
        text, match = matcher.push(piece)
        shown.append(text)
        if match is not None:
            return shown, match
    rest, match = matcher.push("", last=True)
    return [*shown, rest if match else rest + matcher.flush()], match


@pytest.mark.parametrize(
    ("patterns", "pieces", "shown", "match"),
    [
        pytest.param(["</s>"], ["a<", "/", "s>b"], ["a", "", ""], "</s>", id="over-three-pieces"),
        pytest.param(["</s>"], ["a</", "p>"], ["a", "</p>", ""], None, id="failed-match-is-shown"),
        pytest.param(["</s>"], ["a</s"], ["a", "</s"], None, id="flushed-at-the-end"),
        pytest.param(["aab"], ["a", "a", "a", "b"], ["", "", "a", ""], "aab", id="overlaps-itself"),
        pytest.param(["abab!"], ["ab", "ab", "ab", "!"], ["", "", "ab", ""], "abab!", id="period"),
        pytest.param(["bc", "abcd"], ["xabcdy"], ["xa"], "bc", id="complete-first-wins"),
        pytest.param(["bc", "abc"], ["xabcy"], ["x"], "abc", id="same-end-the-longer-wins"),
        pytest.param(["你好"], ["说你", "好吗"], ["说", ""], "你好", id="chinese"),
        pytest.param([], ["a", "b"], ["a", "b", ""], None, id="no-patterns"),
        pytest.param(["x"], ["x"], [""], "x", id="one-character"),
        pytest.param(["\n\n"], ["a\n", "b\n\nc"], ["a", "\nb"], "\n\n", id="newlines"),
    ],
)
def test_a_stop_string_ends_the_text_and_nothing_of_it_is_shown(
    patterns: list[str], pieces: list[str], shown: list[str], match: str | None
) -> None:
    assert stream(patterns, pieces) == (shown, match)


@given(
    st.lists(st.text("ab<", min_size=1, max_size=5), min_size=1, max_size=4),
    st.lists(st.text("ab<", max_size=4), max_size=12),
)
@examples(100)
def test_the_outcome_does_not_depend_on_how_the_text_was_cut(
    patterns: list[str], pieces: list[str]
) -> None:
    in_pieces, whole = stream(patterns, pieces), stream(patterns, list("".join(pieces)))
    assert ("".join(in_pieces[0]), in_pieces[1]) == ("".join(whole[0]), whole[1])


@given(
    st.lists(st.text("ab<", min_size=1, max_size=5), min_size=1, max_size=4),
    st.lists(st.text("ab<", max_size=4), max_size=12),
)
@examples(100)
def test_no_more_is_held_back_than_could_become_a_stop_string(
    patterns: list[str], pieces: list[str]
) -> None:
    matcher, given_text, shown = StopMatcher(patterns), "", ""
    for piece in pieces:
        text, match = matcher.push(piece)
        given_text, shown = given_text + piece, shown + text
        if match is not None:
            assert match in given_text
            assert not any(pattern in shown for pattern in patterns)
            return
        held = given_text[len(shown) :]
        assert given_text.startswith(shown)
        assert not held or any(p.startswith(held) and p != held for p in patterns)
    assert shown + matcher.flush() == given_text


@pytest.mark.parametrize(
    ("stop", "pieces", "shown", "match"),
    [
        pytest.param("e", ["x</end>"], ["x"], "</end>", id="in-the-midst"),
        pytest.param("e", ["x<", "/e", "nd>"], ["x", "", ""], "</end>", id="in-three-pieces"),
        pytest.param("e", ["x</e", "n"], ["x", "", "</"], "e", id="the-text-ends-before-the-tag"),
        pytest.param("e", ["x</e", "g"], ["x", "</"], "e", id="no-tag-after-all"),
        pytest.param("</", ["x</end>"], ["x"], "</", id="the-stop-string-begins-as-the-tag"),
        pytest.param("x<", ["ax</end>"], ["a"], "x<", id="the-stop-string-begins-before-the-tag"),
        pytest.param("d>y", ["x</end>y"], ["x"], "</end>", id="the-tag-is-complete-first"),
        pytest.param("e", ["see</end>"], ["s"], "e", id="before-the-tag"),
        pytest.param("e", ["<</e", "nd>"], ["<", ""], "</end>", id="half-a-beginning-before"),
    ],
)
def test_a_stop_string_in_the_midst_of_a_tag_shows_nothing_of_the_tag(
    stop: str, pieces: list[str], shown: list[str], match: str
) -> None:
    assert stream([stop], pieces, ("</end>",)) == (shown, match)


@examples(300)
@given(
    stops=st.lists(st.text("<>ab", min_size=1, max_size=3), max_size=3),
    pieces=st.lists(st.text("<>ab", max_size=4), max_size=12),
)
def test_with_a_tag_too_the_outcome_does_not_depend_on_how_the_text_was_cut(
    stops: list[str], pieces: list[str]
) -> None:
    text, tags = "".join(pieces), ("<ab>",)
    shown, match = stream(stops, pieces, tags)
    whole_shown, whole_match = stream(stops, [text], tags)
    assert ("".join(shown), match) == ("".join(whole_shown), whole_match)
    letters, letters_match = stream(stops, list(text), tags)
    assert ("".join(letters), letters_match) == ("".join(shown), match)
