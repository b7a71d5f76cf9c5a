"""The forms of `prompt`, and what is wrong with a bad one."""

import msgspec
import pytest

from services.gateway.completion_request import MAX_CHOICES, check_choice_count, read_prompts
from services.gateway.json_ids import MAX_BYTES
from services.gateway.renderable import RawPrompt
from services.runtime.errors import InvalidArgumentError
from services.runtime.plain_text_limits import MAX_TEXT_BYTES


def prompts(value: object) -> list[RawPrompt]:
    return read_prompts(msgspec.Raw(msgspec.json.encode(value)), add_special_tokens=True)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        pytest.param("Hi", [("prompt", "Hi")], id="a text"),
        pytest.param(["a", "b"], [("prompt[0]", "a"), ("prompt[1]", "b")], id="texts"),
        pytest.param(["a"], [("prompt[0]", "a")], id="a list of one text"),
        pytest.param([1, 2], [("prompt", [1, 2])], id="ids"),
        pytest.param([[1], [2, 3]], [("prompt[0]", [1]), ("prompt[1]", [2, 3])], id="lists of ids"),
        pytest.param([1] * 100, [("prompt", [1] * 100)], id="more ids than prompts may be"),
        pytest.param(["x"] * MAX_CHOICES, [(f"prompt[{i}]", "x") for i in range(16)], id="most"),
    ],
)
def test_every_form_of_a_prompt_is_read(value, wanted):
    assert prompts(value) == [RawPrompt(content, True, field) for field, content in wanted]


@pytest.mark.parametrize(
    ("value", "field", "limit"),
    [
        pytest.param(None, "prompt", "a text, token ids", id="null"),
        pytest.param("", "prompt", "at least one byte", id="empty"),
        pytest.param([], "prompt", "at least one token id", id="empty list"),
        pytest.param(["a", ""], "prompt[1]", "at least one byte", id="an empty text"),
        pytest.param([[1], []], "prompt[1]", "at least one token id", id="no ids"),
        pytest.param(["a", 1], "prompt[1]", "of one kind", id="a text and an id"),
        pytest.param([1, [1]], "prompt[1]", "of one kind", id="an id and ids"),
        pytest.param([1, -1], "prompt[1]", "the id of a token", id="negative"),
        pytest.param([[1], [2, 2**32]], "prompt[1][1]", "the id of a token", id="too large"),
        pytest.param([1, 10**30], "prompt[1]", "", id="far too large"),
        pytest.param({"text": "a"}, "prompt", "a string or a list", id="object"),
        pytest.param(7, "prompt", "a string or a list", id="number"),
        pytest.param([1, 1.5], "prompt[1]", "", id="fraction"),
        pytest.param([[1, "a"]], "prompt[0][1]", "an integer, not a string", id="text among ids"),
        pytest.param([True], "prompt[0]", "", id="boolean"),
        pytest.param([[[1]]], "prompt[0][0]", "an integer", id="too deep"),
        pytest.param(["x"] * (MAX_CHOICES + 1), "prompt", "at most 16 prompts", id="too many"),
        pytest.param(
            "x" * (MAX_TEXT_BYTES + 1), "prompt", "at most 1048576 bytes of UTF-8", id="long"
        ),
        pytest.param(
            [7] * (MAX_BYTES // 2), "prompt", "at most 8388608 bytes", id="too much to look at"
        ),
    ],
)
def test_a_bad_prompt_is_refused_by_its_place(value, field, limit):
    with pytest.raises(InvalidArgumentError) as raised:
        prompts(value)
    assert raised.value.field == field
    assert limit in raised.value.metadata["limit"]


def test_a_text_as_long_as_allowed_passes_however_it_is_escaped():
    escaped = b'"' + b"\\u0041" * MAX_TEXT_BYTES + b'"'
    [prompt] = read_prompts(msgspec.Raw(escaped), add_special_tokens=False)
    assert prompt.content == "A" * MAX_TEXT_BYTES


@pytest.mark.parametrize("raw", [b'"\\ud800"', b'["a", "\\ud800"]', b'"\xff"'])
def test_a_text_that_is_no_unicode_is_refused(raw):
    with pytest.raises(InvalidArgumentError) as raised:
        read_prompts(msgspec.Raw(raw), add_special_tokens=True)
    assert raised.value.field == "prompt"


@pytest.mark.parametrize(("prompt_count", "n"), [(1, 16), (16, 1), (5, 3)])
def test_choices_over_all_prompts_are_at_most_16(prompt_count, n):
    check_choice_count(prompt_count, n)
    with pytest.raises(InvalidArgumentError) as raised:
        check_choice_count(prompt_count, n + 1)
    assert raised.value.field == "n"


def test_a_number_that_nothing_can_hold_is_refused():
    with pytest.raises(InvalidArgumentError) as raised:
        read_prompts(msgspec.Raw(b"[1, 1e400]"), add_special_tokens=True)
    assert raised.value.field == "prompt[1]"
