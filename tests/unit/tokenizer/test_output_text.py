"""Cases 1, 3, 19, 20, 21, 22: from ids to what a client is shown."""

from collections.abc import Callable
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_kit import examples

from services.tokenizer.actions import Action
from services.tokenizer.model_folder import ModelFolder
from services.tokenizer.output_text import OutputFormat, OutputOptions, OutputText, Piece

Ids: TypeAlias = Callable[..., list[int]]
TAP = 'do(action="Tap", element=[500,750])'


@pytest.fixture(scope="session")
def ids(folder: ModelFolder) -> Ids:
    """Ids of a text; tags as the model's own ids, or `spelt=True` as plain characters."""

    def encode(text: str, spelt: bool = False) -> list[int]:
        pieces = [text[at : at + 1] for at in range(len(text))] if spelt else [text]
        made = folder.backend.encode_batch(pieces, add_special_tokens=False)
        return [token_id for encoding in made for token_id in encoding.ids]

    return encode


def run(form: OutputFormat, token_ids: list[int], last: bool = True, **options: object) -> Piece:
    """The whole text of some ids that come one by one."""
    text, whole = OutputText(form, OutputOptions(**options)), Piece()  # type: ignore[arg-type]
    for token_id in token_ids:
        whole.append(text.push([token_id]))
        if whole.finished:
            return whole
    if last:
        whole.append(text.end())
    return whole


@pytest.mark.parametrize("spelt", [False, True], ids=["one-token", "spelt-over-tokens"])
def test_case_1_the_model_s_end_tag_ends_the_text_and_is_not_shown(
    output_format: OutputFormat, ids: Ids, spelt: bool
) -> None:
    tokens = ids(TAP) + ids("</answer>", spelt=spelt)
    piece = run(output_format, [*tokens, *ids("more")], last=False)
    assert (piece.text, piece.finished, piece.end_tag) == (TAP, True, True)
    assert piece.consumed_tokens == len(tokens)
    assert piece.stop_match == ""


def test_case_1_not_even_a_part_of_the_end_tag_is_shown(
    output_format: OutputFormat, ids: Ids
) -> None:
    text = OutputText(output_format, OutputOptions())
    shown = [text.push([token]).text for token in ids("ok") + ids("</answer>", spelt=True)]
    assert "".join(shown) == "ok"


@pytest.mark.parametrize("spelt", [False, True], ids=["one-token", "spelt-over-tokens"])
@pytest.mark.parametrize("stop", ["a", "nsw", ">", "/"])
def test_case_1_a_stop_string_in_the_midst_of_the_end_tag_shows_nothing_of_it(
    output_format: OutputFormat, ids: Ids, spelt: bool, stop: str
) -> None:
    tokens = ids("ok ") + ids("</answer>", spelt=spelt)
    piece = run(output_format, tokens, stop=(stop,))
    assert (piece.text, piece.finished, piece.end_tag) == ("ok ", True, True)
    cut_short = run(output_format, tokens[:-1] + ids("."), stop=(stop,)) if spelt else None
    if cut_short is not None and stop != ">":
        assert (cut_short.stop_match, cut_short.text) == (
            stop,
            "ok </answer"[: 3 + "</answer".index(stop)],
        )


def test_case_1_what_only_began_like_the_end_tag_is_shown_when_it_fails_or_ends(
    output_format: OutputFormat, ids: Ids
) -> None:
    assert run(output_format, ids("a</ans", spelt=True)).text == "a</ans"
    assert run(output_format, ids("a</answers", spelt=True)).text == "a</answers"


def test_case_1_half_a_spelt_end_tag_before_the_end_tag_is_text(
    output_format: OutputFormat, ids: Ids
) -> None:
    piece = run(output_format, ids("a</ans", spelt=True) + ids("</answer>"), last=False)
    assert (piece.text, piece.end_tag) == ("a</ans", True)


@pytest.mark.parametrize("token", ["<|user|>", "<|endoftext|>", "<|observation|>"])
def test_end_tokens_end_the_text_and_are_never_shown(
    output_format: OutputFormat, ids: Ids, token: str
) -> None:
    piece = run(output_format, ids("ok</") + ids(token), last=False)
    assert (piece.text, piece.finished, piece.end_tag) == ("ok</", True, True)


def test_other_special_tokens_are_not_shown_and_end_nothing(
    output_format: OutputFormat, ids: Ids
) -> None:
    piece = run(output_format, ids("a") + ids("<|image|>") + ids("<sop>") + ids("b"))
    assert (piece.text, piece.end_tag) == ("ab", False)


def test_with_ignore_eos_ends_are_shown_as_text(output_format: OutputFormat, ids: Ids) -> None:
    tokens = ids("a") + ids("</answer>") + ids("<|user|>") + ids("b")
    piece = run(output_format, tokens, ignore_eos=True)
    assert (piece.text, piece.end_tag) == ("a</answer><|user|>b", False)


def test_case_3_a_text_without_an_end_is_flushed_at_the_last_id(
    output_format: OutputFormat, ids: Ids
) -> None:
    piece = run(output_format, ids("on and on"))
    assert (piece.text, piece.finished, piece.end_tag) == ("on and on", True, False)


def test_case_19_a_stop_string_over_several_tokens_is_found_and_nothing_of_it_shown(
    output_format: OutputFormat, ids: Ids
) -> None:
    piece = run(output_format, ids("one STOP two", spelt=True), stop=("STOP",), last=False)
    assert (piece.text, piece.finished, piece.stop_match) == ("one ", True, "STOP")
    assert piece.consumed_tokens == len(ids("one STOP", spelt=True))
    assert not piece.end_tag


def test_case_19_a_stop_string_inside_the_thought_counts(
    output_format: OutputFormat, ids: Ids
) -> None:
    tokens = ids("<think>red STOP</think>\n<answer>x", spelt=True)
    piece = run(output_format, tokens, stop=("STOP",), split_reasoning=True, last=False)
    assert (piece.reasoning, piece.text, piece.stop_match) == ("red ", "", "STOP")


def test_case_19_a_stop_string_may_be_a_tag(output_format: OutputFormat, ids: Ids) -> None:
    tokens = ids("<think>T</think>\n<answer>x")
    piece = run(output_format, tokens, stop=("</think>",), split_reasoning=True, last=False)
    assert (piece.reasoning, piece.stop_match) == ("T", "</think>")


def test_case_20_a_stop_string_that_is_the_end_tag_is_told_as_the_request_s(
    output_format: OutputFormat, ids: Ids
) -> None:
    piece = run(output_format, ids("a</answer>"), stop=("</answer>",), last=False)
    assert (piece.stop_match, piece.end_tag) == ("</answer>", False)


def test_case_21_max_tokens_inside_a_character_gives_one_replacement_at_the_end(
    output_format: OutputFormat, ids: Ids
) -> None:
    piece = run(output_format, ids("好🦜")[:-1])
    assert piece.text == "好�"


def test_case_22_no_piece_is_news_before_the_first_text(
    output_format: OutputFormat, ids: Ids
) -> None:
    text = OutputText(output_format, OutputOptions())
    news = [piece for token in ids("🦜") if (piece := text.push([token])).is_news]
    assert [piece.text for piece in news] == ["🦜"]


def test_thought_and_answer_come_apart_on_demand(output_format: OutputFormat, ids: Ids) -> None:
    tokens = ids(f"<think>红色按钮</think>\n<answer>{TAP}</answer>")
    piece = run(output_format, tokens, split_reasoning=True, last=False)
    assert (piece.reasoning, piece.text) == ("红色按钮", TAP)
    assert piece.action == Action("Tap", {"element": [500, 750]})


def test_without_the_split_everything_is_text_and_the_action_is_told_all_the_same(
    output_format: OutputFormat, ids: Ids
) -> None:
    written = f"<think>红色按钮</think>\n<answer>{TAP}"
    piece = run(output_format, ids(written + "</answer>"), last=False)
    assert (piece.reasoning, piece.text) == ("", written)
    assert piece.action == Action("Tap", {"element": [500, 750]})


def test_a_prompt_that_closed_the_thought_leaves_the_answer_only(
    output_format: OutputFormat, ids: Ids
) -> None:
    piece = run(
        output_format, ids(f"\n<answer>{TAP}</answer>"), split_reasoning=True, thinking_closed=True
    )
    assert (piece.reasoning, piece.text) == ("", TAP)


def test_an_answer_that_is_no_action_has_none(output_format: OutputFormat, ids: Ids) -> None:
    assert run(output_format, ids("你好</answer>")).action is None


def test_an_endless_answer_is_not_kept(output_format: OutputFormat, ids: Ids) -> None:
    text = OutputText(output_format, OutputOptions())
    for _ in range(40):
        text.push(ids("word " * 1000))
    assert len(text._answer) < 20_000


def test_an_id_out_of_the_vocabulary_is_an_error(output_format: OutputFormat) -> None:
    with pytest.raises(ValueError, match="not below the vocabulary's size"):
        OutputText(output_format, OutputOptions()).push([output_format.vocabulary_size])


@given(data=st.data())
@examples(300)
def test_text_equals_the_tokenizer_s_decoding_however_the_ids_are_cut_into_messages(
    folder: ModelFolder, output_format: OutputFormat, data: st.DataObject
) -> None:
    usual = [i for i in range(folder.vocabulary_size) if i not in folder.end_ids]
    token_ids = data.draw(st.lists(st.sampled_from(usual), max_size=40))
    decoded = folder.backend.decode(token_ids, skip_special_tokens=True)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(token_ids)), max_size=5)))
    for end in ([], [next(iter(folder.end_ids))]):
        text, whole = OutputText(output_format, OutputOptions()), Piece()
        for start, stop in zip([0, *cuts], [*cuts, len(token_ids)], strict=True):
            whole.append(text.push(token_ids[start:stop]))
        whole.append(text.push(end) if end else text.end())
        assert whole.text == decoded
