"""Bodies validate against the openai package's own types, and keep the safe wire rules of clients.md."""

import json

from openai.types.chat import ChatCompletion, ChatCompletionChunk

from services.gateway.events import ChoiceEnd, Finish, Usage
from services.gateway.openai_response import (
    AnswerBuilder,
    ChunkWriter,
    encode,
    error_body,
    sse,
)
from services.runtime.errors import InvalidArgumentError


def chunks(data: bytes) -> list[dict[str, object]]:
    lines = data.decode().split("\n\n")
    assert lines.pop() == ""
    assert all(line.startswith("data: ") for line in lines)
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def written() -> list[dict[str, object]]:
    writer = ChunkWriter("chatcmpl-1", 1_700_000_000, "m")
    data = writer.text(0, "你") + writer.text(0, "好")
    data += writer.end(ChoiceEnd(0, Finish.STOP)) + writer.usage(Usage(3, 2, 1))
    return chunks(data)


def test_chunks_are_what_openai_reads():
    for chunk in written():
        assert ChatCompletionChunk.model_validate(chunk, strict=True)


def test_the_role_comes_once_with_the_first_text():
    deltas = [chunk["choices"][0]["delta"] for chunk in written()[:3]]
    assert deltas == [{"role": "assistant", "content": "你"}, {"content": "好"}, {}]


def test_exactly_one_chunk_carries_the_reason_and_it_is_null_before():
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in written()[:3]]
    assert reasons == [None, None, "stop"]


def test_usage_comes_last_alone_without_choices():
    *others, last = written()
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 1},
    }
    assert all("usage" not in chunk for chunk in others)


def test_a_thought_goes_by_both_names_and_not_into_content():
    writer = ChunkWriter("chatcmpl-1", 1, "m")
    [first] = chunks(writer.reasoning(0, "hm"))
    assert first["choices"][0]["delta"] == {
        "role": "assistant",
        "reasoning_content": "hm",
        "reasoning": "hm",
    }


def test_an_empty_answer_still_has_a_role_and_an_empty_text():
    first, second = chunks(ChunkWriter("c", 1, "m").end(ChoiceEnd(0, Finish.LENGTH)))
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert second["choices"][0]["finish_reason"] == "length"


def test_a_whole_answer_is_what_openai_reads():
    builder = AnswerBuilder("chatcmpl-1", 1, "m", 2)
    builder.text(0, "a")
    builder.reasoning(1, "t")
    ends = [ChoiceEnd(0, Finish.STOP_SEQUENCE, "x"), ChoiceEnd(1, Finish.TIME_LIMIT)]
    body = json.loads(encode(builder.build(ends, Usage(1, 2, 0))))
    answer = ChatCompletion.model_validate(body)
    assert [choice.finish_reason for choice in answer.choices] == ["stop", "length"]
    assert body["choices"][1]["message"] == {
        "role": "assistant",
        "content": "",
        "reasoning_content": "t",
        "reasoning": "t",
    }


def test_an_error_names_param_type_and_code():
    [error] = chunks(sse(error_body(InvalidArgumentError("top_p", 0, "above 0"))))
    assert error == {
        "error": {
            "message": "top_p: 0 is not allowed; must be above 0.",
            "type": "invalid_request_error",
            "param": "top_p",
            "code": "invalid_value",
        }
    }
