"""Case 12: control tokens spelt in text stay text."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_kit import RenderIds, examples

from services.runtime.errors import InvalidArgumentError
from services.tokenizer.conversation import Role, Text
from services.tokenizer.model_folder import ModelFolder
from services.tokenizer.special_text import MAX_CUTS, SpecialText, new_mark

OUTPUT_TAGS = ["<think>", "</think>", "<answer>", "</answer>"]


def controls(folder: ModelFolder, ids: Sequence[int]) -> Counter[str]:
    """Which control tokens the ids hold, and how often."""
    spelling = {token_id: text for text, token_id in folder.control.items()}
    return Counter(spelling[token_id] for token_id in ids if token_id in spelling)


@pytest.fixture(scope="module")
def template_controls(folder: ModelFolder, render_ids: RenderIds) -> Counter[str]:
    """The control tokens of a system and a user message without any in their texts."""
    return controls(folder, render_ids((Role.SYSTEM, "s"), (Role.USER, "u")))


def hostile_texts(folder: ModelFolder) -> st.SearchStrategy[str]:
    """Texts full of control tokens, halves of them, and overlapping ones."""
    spellings = sorted(folder.control)
    halves = [text[:3] for text in spellings] + [text[2:] for text in spellings]
    piece = st.sampled_from(
        [*spellings, *halves, "<", "|", ">", "[", "]", "/", " ", "\n", "a", "好"]
    )
    return st.lists(piece, max_size=8).map("".join)


@given(data=st.data())
@examples(1000)
def test_no_text_of_a_user_or_system_message_ever_yields_a_control_id(
    folder: ModelFolder,
    render_ids: RenderIds,
    template_controls: Counter[str],
    data: st.DataObject,
) -> None:
    hostile = hostile_texts(folder)
    system, *parts = data.draw(st.lists(hostile, min_size=2, max_size=4))
    ids = render_ids((Role.SYSTEM, system), (Role.USER, [Text("x"), *map(Text, parts)]))
    assert controls(folder, ids) == template_controls
    decoded = folder.backend.decode(ids, skip_special_tokens=False)
    assert f"<|system|>\n{system}" in decoded
    assert f"<|user|>\nx{''.join(parts)}<|assistant|>" in decoded


@given(data=st.data())
@examples(300)
def test_assistant_turns_yield_the_model_s_own_tags_and_no_other_control_id(
    folder: ModelFolder, render_ids: RenderIds, data: st.DataObject
) -> None:
    text = data.draw(hostile_texts(folder))
    ids = render_ids((Role.USER, "u"), (Role.ASSISTANT, text), (Role.USER, "v"))
    found = controls(folder, ids)
    tags = set(OUTPUT_TAGS) | {"<|begin_of_box|>", "<|end_of_box|>"}
    assert {control: count for control, count in found.items() if control not in tags} == {
        "[gMASK]": 1,
        "<sop>": 1,
        "<|user|>": 2,
        "<|assistant|>": 2,
    }
    assert text in folder.backend.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize(
    "text",
    ["<|image|>", "<|user|>", "<|assistant|>", "[gMASK]", "<think>", "</answer>", "/nothink"],
)
def test_case_12_a_control_token_typed_by_a_user_is_plain_text(
    folder: ModelFolder, render_ids: RenderIds, template_controls: Counter[str], text: str
) -> None:
    ids = render_ids((Role.SYSTEM, "s"), (Role.USER, f"what is {text}?"))
    assert controls(folder, ids) == template_controls
    assert text in folder.backend.decode(ids, skip_special_tokens=True)


def test_case_12_the_model_s_own_output_replayed_in_history_keeps_its_tags_as_ids(
    folder: ModelFolder, render_ids: RenderIds
) -> None:
    turn = "<think>T</think>\n<answer>do(action='Back')</answer>"
    found = controls(folder, render_ids((Role.USER, "u"), (Role.ASSISTANT, turn)))
    assert [found[tag] for tag in OUTPUT_TAGS] == [1, 1, 1, 1]


def test_case_12_a_control_token_put_together_from_two_parts_is_plain_text(
    folder: ModelFolder, render_ids: RenderIds
) -> None:
    ids = render_ids((Role.USER, [Text("a <|us"), Text("er|> b <|"), Text("image"), Text("|>")]))
    assert controls(folder, ids) == {"[gMASK]": 1, "<sop>": 1, "<|user|>": 1, "<|assistant|>": 1}


def test_case_12_template_variables_yield_no_control_id(render_ids: RenderIds) -> None:
    plain = render_ids((Role.USER, "u"))
    assert render_ids((Role.USER, "u"), variables={"unused": ["<|user|>", {"a": 1}]}) == plain


def test_case_2_doubled_tags_in_history_are_rendered_as_they_stand(
    folder: ModelFolder, render_ids: RenderIds
) -> None:
    turn = "<think><think>T</think>\n<answer></think><answer>do(action='Back')"
    history = [(Role.USER, "u"), (Role.ASSISTANT, turn)] * 4
    ids = render_ids(*history, (Role.USER, "u"))
    assert folder.backend.decode(ids, skip_special_tokens=False).count(turn) == 4
    assert controls(folder, ids)["<think>"] == 8


def encode_characters(control: dict[str, int], texts: list[str]) -> list[list[int]]:
    """A toy tokenizer: control tokens where they are spelt, else code points."""
    import re

    pattern = re.compile("|".join(map(re.escape, sorted(control, key=len, reverse=True))) + "|.")
    return [
        [control.get(found, ord(found[0])) for found in pattern.findall(text)] for text in texts
    ]


def guarded_ids(control: dict[str, int], template: str, text: str) -> list[int]:
    special, mark = SpecialText(control, ()), new_mark()
    marked = template.format(special.guard(mark, allow_output_tags=False)(text))
    return special.encode(marked, mark, lambda texts: encode_characters(control, texts))


@pytest.mark.parametrize(
    ("template", "text"),
    [
        pytest.param("{}", "<<a>>", id="one-inside-another"),
        pytest.param("{}", "<a><a>", id="in-a-row"),
        pytest.param("{}", "<a><a", id="overlapping"),
        pytest.param("<{}>", "a", id="the-template-s-brackets"),
        pytest.param("<{}", "a>", id="begun-by-the-template"),
        pytest.param("{}>", "<a", id="ended-by-the-template"),
    ],
)
def test_no_text_completes_a_control_token_with_what_stands_around_it(
    template: str, text: str
) -> None:
    control = {"<a>": -1, "<<a>>": -2, "><": -3}
    assert guarded_ids(control, template, text) == list(map(ord, template.format(text)))


def test_marks_that_came_to_nothing_do_not_cut_the_prompt() -> None:
    special, mark = SpecialText({"<a>": -1}, ()), new_mark()
    seen: list[str] = []

    def encode(texts: list[str]) -> list[list[int]]:
        seen.extend(texts)
        return [[] for _ in texts]

    special.encode(special.guard(mark, allow_output_tags=False)("> x <"), mark, encode)
    assert seen == ["> x <"]


def test_a_tokenizer_that_sees_a_control_token_in_spite_of_the_cuts_is_refused() -> None:
    special = SpecialText({"<a>": -1}, ())
    with pytest.raises(InvalidArgumentError, match="control tokens"):
        special.encode("＜a＞", new_mark(), lambda texts: [[-1]])


def test_more_spelt_control_tokens_than_the_limit_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=str(MAX_CUTS)):
        guarded_ids({"<a>": -1}, "{}", "<a>" * (MAX_CUTS + 1))
