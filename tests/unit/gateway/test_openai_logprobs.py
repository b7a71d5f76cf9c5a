"""`choices[].logprobs` in OpenAI's shape, and in the native events."""

import json
import math

import pytest
from hotline.v1 import generation_pb2
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from services.gateway import wire
from services.gateway.events import ChoiceEnd, Finish, Numbered, PositionLogprobs, Text, Usage
from services.gateway.logprob_wire import messages, packed
from services.gateway.openai_logprobs import shown_tokens
from services.gateway.openai_response import AnswerBuilder, ChunkWriter, encode

_Token = generation_pb2.TokenLogprob


def message(token: bytes, logprob: float, *top: tuple[bytes, float]) -> object:
    return generation_pb2.PositionLogprobs(
        sampled=_Token(token_id=7, token=token, logprob=logprob),
        top=[_Token(token=other, logprob=value) for other, value in top],
    )


def positions(*of: object) -> tuple[PositionLogprobs, ...]:
    return packed(of)  # type: ignore[arg-type]


def shown(*of: object) -> list[dict[str, object]]:
    return [json.loads(bytes(raw)) for raw in shown_tokens(positions(*of))]


HI = message(b"Hi", -0.5, (b"Hi", -0.5), (b"\xe4\xbd", -2.0))


def test_a_token_has_its_text_its_bytes_and_the_likeliest_ones():
    assert shown(HI) == [
        {
            "token": "Hi",
            "logprob": -0.5,
            "bytes": [72, 105],
            "top_logprobs": [
                {"token": "Hi", "logprob": -0.5, "bytes": [72, 105]},
                {"token": "\ufffd", "logprob": -2.0, "bytes": [0xE4, 0xBD]},
            ],
        }
    ]


@pytest.mark.parametrize("logprob", [-math.inf, math.nan, -1e30])
def test_what_json_cannot_hold_becomes_openai_s_least(logprob):
    [token] = shown(message(b"a", logprob, (b"b", logprob)))
    assert token["logprob"] == -9999.0
    assert token["top_logprobs"][0]["logprob"] == -9999.0


def test_chunks_have_them_beside_their_text_and_nowhere_else():
    writer = ChunkWriter("chatcmpl-1", 1, "m")
    data = writer.text(0, "Hi", positions(HI)) + writer.text(0, "-") + writer.reasoning(0, "t")
    data += writer.end(ChoiceEnd(0, Finish.STOP)) + writer.usage(Usage(1, 1, 0))
    chunks = [json.loads(line[6:]) for line in data.decode().split("\n\n")[:-1]]
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk, strict=True)
    first, *others = chunks
    assert first["choices"][0]["logprobs"] == {"content": shown(HI), "refusal": None}
    assert not [choice for chunk in others for choice in chunk["choices"] if "logprobs" in choice]


@pytest.mark.parametrize("asked", [False, True])
def test_a_whole_answer_has_a_list_if_asked_and_null_if_not(asked):
    answer = AnswerBuilder("chatcmpl-1", 1, "m", choice_count=2, with_logprobs=asked)
    answer.text(1, "Hi", positions(HI) if asked else ())
    answer.text(1, "Hi", positions(HI) if asked else ())
    ends = [ChoiceEnd(0, Finish.STOP), ChoiceEnd(1, Finish.LENGTH)]
    body = json.loads(encode(answer.build(ends, Usage(1, 2, 0))))
    ChatCompletion.model_validate(body, strict=True)
    found = [choice["logprobs"] for choice in body["choices"]]
    empty = {"content": [], "refusal": None}
    both = {"content": shown(HI, HI), "refusal": None}
    assert found == ([empty, both] if asked else [None, None])


def test_a_native_event_has_them_as_the_tokenizer_made_them():
    event = wire.event(Numbered(3, Text(1, "Hi", positions(HI))))
    assert list(event.text.logprobs) == [HI]
    assert (event.text.text, event.choice_index, event.sequence) == ("Hi", 1, 3)


def test_an_empty_entry_stands_where_nobody_will_look():
    [first, empty] = messages([*positions(HI), None])
    assert first == HI
    assert empty == generation_pb2.PositionLogprobs()
