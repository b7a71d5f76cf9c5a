"""Text completion bodies, piece by piece and whole, in the openai package's own type."""

import json

import pytest
from openai.types import Completion

from services.gateway.completion_response import TextCompletionWriter
from services.gateway.events import ChoiceEnd, Finish, Usage
from services.gateway.openai_response import encode

USAGE = Usage(prompt_tokens=5, completion_tokens=7, cached_tokens=3)


def writer(choice_count: int = 1) -> TextCompletionWriter:
    return TextCompletionWriter("cmpl-1", 1_700_000_000, "tiny", choice_count)


def data(event: bytes) -> dict[str, object]:
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    body: dict[str, object] = json.loads(event[6:])
    return body


def test_an_event_of_text_has_no_reason_and_no_usage():
    assert data(writer().text(0, "你好")) == {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1_700_000_000,
        "model": "tiny",
        "choices": [{"index": 0, "text": "你好", "logprobs": None, "finish_reason": None}],
    }


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        (Finish.STOP, "stop"),
        (Finish.STOP_SEQUENCE, "stop"),
        (Finish.CANCELLED, "stop"),
        (Finish.LENGTH, "length"),
        (Finish.TIME_LIMIT, "length"),
    ],
)
def test_an_end_says_why_with_an_empty_text(finish, reason):
    [choice] = data(writer(4).end(ChoiceEnd(3, finish)))["choices"]
    assert choice == {"index": 3, "text": "", "logprobs": None, "finish_reason": reason}


def test_usage_comes_with_no_choice():
    body = data(writer().usage(USAGE))
    assert body["choices"] == []
    assert body["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 7,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 3},
    }


def test_a_whole_answer_has_every_choice_s_text_in_order():
    made = writer(2)
    for index, text in ((1, "b"), (0, "a"), (1, "B"), (0, "A")):
        made.keep(index, text)
    ends = [ChoiceEnd(0, Finish.STOP), ChoiceEnd(1, Finish.LENGTH)]
    body = json.loads(encode(made.whole(ends, USAGE)))
    completion = Completion.model_validate(body, strict=True)
    assert [choice.text for choice in completion.choices] == ["aA", "bB"]
    assert [choice.finish_reason for choice in completion.choices] == ["stop", "length"]
    assert completion.usage is not None
    assert completion.usage.total_tokens == 12


def test_a_choice_without_text_is_an_empty_string():
    body = json.loads(encode(writer().whole([ChoiceEnd(0, Finish.STOP)], USAGE)))
    assert body["choices"][0]["text"] == ""
