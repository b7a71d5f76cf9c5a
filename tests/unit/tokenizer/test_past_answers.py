"""What of an answer stays in the history of a conversation."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
from tokenizer_kit import Settings

from services.runtime.errors import InvalidArgumentError
from services.tokenizer.conversation import Answer
from services.tokenizer.model import Model, _past_answers
from services.tokenizer.model_folder import ModelFolder
from services.tokenizer.past_answer import KeptAnswer, PastAnswers

Ids: TypeAlias = Callable[..., list[int]]


@pytest.fixture
def answers(model: Model) -> PastAnswers:
    past: PastAnswers = model.renderer._history.answers
    return past


@pytest.fixture
def ids(folder: ModelFolder) -> Ids:
    """Ids of pieces: each is encoded alone, control tokens count."""

    def encode(*pieces: str) -> list[int]:
        encoded = (folder.backend.encode(piece, add_special_tokens=False).ids for piece in pieces)
        return [token_id for piece in encoded for token_id in piece]

    return encode


@pytest.fixture
def boxed(folder: ModelFolder, ids: Ids) -> ModelFolder:
    """The folder with a special token among the tags that answers may have, so that clients do not see it."""
    return replace(folder, special_ids=folder.special_ids | {*ids("<|begin_of_box|>")})


def kept(past: PastAnswers, token_ids: list[int], stop: str = "") -> KeptAnswer:
    return past.keep(Answer("continuation", token_ids, stop))


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param([], id="cut at a limit"),
        pytest.param(["<|user|>"], id="the next turn's token"),
        pytest.param(["<|endoftext|>"], id="end of text"),
        pytest.param(["<|observation|>", "<|user|>"], id="two of them"),
    ],
)
def test_end_tokens_do_not_stay(answers: PastAnswers, ids: Ids, ending: list[str]) -> None:
    body = ids("你", "好", "!", "</think>")
    assert kept(answers, [*body, *ids(*ending)]) == KeptAnswer(len(body), "", "你好!</think>")


def test_no_ids_are_no_text(answers: PastAnswers, ids: Ids) -> None:
    assert kept(answers, []) == kept(answers, ids("<|user|>")) == KeptAnswer(0, "", "")


@pytest.mark.parametrize("stays", [True, False], ids=["stays", "goes"])
@pytest.mark.parametrize(
    ("tag", "pieces", "count", "rest"),
    [
        pytest.param("</answer>", ["</answer>"], 1, "", id="as a token"),
        pytest.param("</answer>", [*"</answer>"], 9, "", id="letter by letter"),
        pytest.param("</t", ["<", "/", "tion"], 2, "t", id="inside its last token"),
        pytest.param("</answer>", ["</answer>", "<|user|>"], 1, "", id="before an end token"),
    ],
)
def test_an_end_tag_stays_or_goes_as_configured(
    tokenizer_settings: Settings,
    folder: ModelFolder,
    ids: Ids,
    stays: bool,
    tag: str,
    pieces: list[str],
    count: int,
    rest: str,
) -> None:
    settings = tokenizer_settings(history_end_tags=stays, end_tags=[tag])
    found = kept(_past_answers(folder, settings), ids("a", *pieces))
    there = KeptAnswer(1 + count, rest, f"a{tag}")
    assert found == (there if stays else KeptAnswer(1, "", "a"))


def test_an_end_tag_in_the_midst_of_an_answer_ended_nothing(answers: PastAnswers, ids: Ids) -> None:
    token_ids = ids("a", "</answer>", "b")
    assert kept(answers, token_ids) == KeptAnswer(len(token_ids), "", "a</answer>b")


@pytest.mark.parametrize(
    ("pieces", "stop", "expected"),
    [
        pytest.param(["ab", "STOP", "c"], "STOP", "ab", id="between tokens"),
        pytest.param(["a", " STOP"], "STOP", "a ", id="inside a token"),
        pytest.param(["STOP", "STOP"], "STOP", "", id="at once"),
        pytest.param(
            ["好", "<think>", "好x"], "好x", "好<think>", id="characters of several bytes"
        ),
        pytest.param(["a", "</think>", "b"], "k>b", "a</thin", id="inside a tag"),
        pytest.param(
            ["a", "S", "<|begin_of_box|>", "T", "b"], "STb", "a", id="around a tag unseen"
        ),
        pytest.param(["<|begin_of_box|>", "abc"], "b", "<|begin_of_box|>a", id="behind one"),
        pytest.param(["abc", "<|user|>"], "xyz", "abc", id="not there"),
    ],
)
def test_case_19_all_from_a_stop_string_on_goes_and_what_was_shown_stays(
    tokenizer_settings: Settings,
    boxed: ModelFolder,
    ids: Ids,
    pieces: list[str],
    stop: str,
    expected: str,
) -> None:
    found = kept(_past_answers(boxed, tokenizer_settings()), token_ids := ids(*pieces), stop)
    start = boxed.backend.decode(token_ids[: found.id_count], skip_special_tokens=False)
    assert found.text == start + found.rest == expected


def test_case_2_doubled_tags_that_a_model_sampled_stay_as_they_are(
    answers: PastAnswers, ids: Ids
) -> None:
    text = "<think><think>so</think>\n<answer></think><answer>do()</answer>"
    token_ids = ids(text)
    assert kept(answers, [*token_ids, *ids("<|user|>")]) == KeptAnswer(len(token_ids), "", text)


def test_half_a_character_before_a_cut_is_not_left_alone(
    answers: PastAnswers, model: Model, folder: ModelFolder
) -> None:
    byte = {folder.backend.id_to_token(one): one for one in range(folder.vocabulary_size)}
    spelt = [byte[one] for one in "ä½łå¥½"]  # the six bytes of 你好
    assert kept(answers, spelt, "好") == KeptAnswer(3, "", "你")
    assert kept(answers, spelt[:5]) == KeptAnswer(5, "", "你\ufffd")
    placeholder = [*spelt[:5], folder.image_token_id or 0, byte["a"]]
    assert kept(answers, placeholder) == KeptAnswer(3, "\ufffda", "你\ufffda")


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        pytest.param(["a", "<|image|>", "b"], KeptAnswer(1, "b", "ab"), id="a placeholder"),
        pytest.param(["a", "<|assistant|>", "b"], KeptAnswer(1, "b", "ab"), id="a turn"),
        pytest.param(
            ["a", "<|user|>", "b"], KeptAnswer(1, "<|user|>b", "a<|user|>b"), id="an end ignored"
        ),
    ],
)
def test_control_tokens_that_a_model_sampled_open_no_turn_and_show_no_image(
    answers: PastAnswers, ids: Ids, pieces: list[str], expected: KeptAnswer
) -> None:
    assert kept(answers, ids(*pieces)) == expected


@pytest.mark.parametrize(
    ("values", "words"),
    [
        pytest.param(
            {"token_ids": [1, 3072]}, r"continuation\.answer_token_ids\[1\].*3072", id="id"
        ),
        pytest.param({"token_ids": [0] * (1 << 20 | 1)}, "at most 1048576 ids", id="count"),
        pytest.param({"stop_match": "好" * 86}, r"stop_match.*258 bytes", id="stop"),
    ],
)
def test_answers_that_cannot_be_are_refused_by_the_part_s_name(
    answers: PastAnswers, values: dict[str, Any], words: str
) -> None:
    given: dict[str, Any] = {"field": "continuation", "token_ids": []} | values
    with pytest.raises(InvalidArgumentError, match=words):
        answers.keep(Answer(**given))
