"""Render with a continuation, and with answers as ids, on the wire."""

from typing import Any

import grpc
import pytest
from hotline.v1 import conversation_pb2, tokenizer_pb2
from PIL import Image as Picture
from tokenizer_kit import Encoded, Stub, user

from services.tokenizer.model import Model

ASSISTANT = conversation_pb2.Message(role=conversation_pb2.ROLE_ASSISTANT, text="")


def request(*messages: conversation_pb2.Message, **fields: Any) -> tokenizer_pb2.RenderRequest:
    return tokenizer_pb2.RenderRequest(messages=messages or [user("go on")], **fields)


def past(index: int, *ids: int, prefix: str = "", stop: str = "") -> tokenizer_pb2.PastAnswer:
    answer = tokenizer_pb2.Continuation(answer_token_ids=ids, stop_match=stop)
    return tokenizer_pb2.PastAnswer(message_index=index, answer=answer, prefix=prefix)


async def text(stub: Stub, ids: Any) -> str:
    decode = tokenizer_pb2.DecodeTokensRequest(token_ids=ids)
    return str((await stub.DecodeTokens(decode, timeout=30)).text)


async def test_what_follows_an_answer_comes_alone(
    stub: Stub, model: Model, encoded: Encoded
) -> None:
    picture = encoded(Picture.new("RGB", (56, 56)))
    answer = [*model.plain.encode("abc</answer>", True), 3051]
    response = await stub.Render(
        request(
            user("look: ", picture, "<|assistant|>"),
            continuation=tokenizer_pb2.Continuation(answer_token_ids=answer),
            options=conversation_pb2.RenderOptions(enable_thinking=False),
        ),
        timeout=30,
    )
    image = f"<|begin_of_image|>{'<|image|>' * 9}<|end_of_image|>"
    assert await text(stub, response.token_ids) == (
        f"<|user|>\nlook: {image}<|assistant|><|assistant|>\n<think></think>\n"
    )
    assert list(response.token_ids).count(3052) == 1
    assert response.answer_token_count == len(answer) - 1
    assert (response.answer_prefix, response.thinking_closed) == ("<think></think>\n", True)
    (placement,) = response.features
    at = slice(placement.offset, placement.offset + placement.length)
    assert list(response.token_ids[at]) == [3058] * 9
    assert not response.whole_needed


async def test_the_shown_rest_of_a_token_that_a_stop_string_cut_comes_first(
    stub: Stub, model: Model
) -> None:
    answer = model.plain.encode("say tion")
    after = tokenizer_pb2.Continuation(answer_token_ids=answer, stop_match="ion")
    response = await stub.Render(request(continuation=after), timeout=30)
    kept = answer[: response.answer_token_count]
    assert len(kept) < len(answer)
    assert await text(stub, [*kept, *response.token_ids]) == ("say t<|user|>\ngo on<|assistant|>\n")


async def test_a_message_without_text_may_follow_an_answer(stub: Stub) -> None:
    response = await stub.Render(
        request(user(""), continuation=tokenizer_pb2.Continuation()), timeout=30
    )
    assert await text(stub, response.token_ids) == "<|user|>\n<|assistant|>\n"


async def test_answers_as_ids_are_the_texts_of_their_messages(stub: Stub, model: Model) -> None:
    ids = [*model.plain.encode("<think>so</think>tap<|user|>", True), *model.plain.encode("x")]
    chat = [user("a"), ASSISTANT, user("b"), ASSISTANT, user("c")]
    answers = [past(1, *ids, prefix="<think></think>\n"), past(3, *ids[:-2], 3051)]
    response = await stub.Render(request(*chat, past_answers=answers), timeout=30)
    texts = ["<think></think>\n<think>so</think>tap<|user|>x", "<think>so</think>tap"]
    for index, said in zip((1, 3), texts, strict=True):
        chat[index] = conversation_pb2.Message(role=conversation_pb2.ROLE_ASSISTANT, text=said)
    assert response == await stub.Render(request(*chat), timeout=30)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        pytest.param(
            request(continuation=tokenizer_pb2.Continuation(answer_token_ids=[5, 3072])),
            "continuation.answer_token_ids[1]",
            id="an id beyond the vocabulary",
        ),
        pytest.param(
            request(continuation=tokenizer_pb2.Continuation(stop_match="x" * 257)),
            "continuation.stop_match",
            id="a long stop string",
        ),
        pytest.param(
            request(
                user("a"),
                ASSISTANT,
                continuation=tokenizer_pb2.Continuation(),
                past_answers=[past(1)],
            ),
            "past_answers",
            id="both",
        ),
        pytest.param(
            request(user("a"), past_answers=[past(0)]), "past_answers[0].message_index", id="a user"
        ),
        pytest.param(
            request(user("a"), ASSISTANT, past_answers=[past(2)]),
            "past_answers[0].message_index",
            id="behind the end",
        ),
        pytest.param(
            request(user("a"), ASSISTANT, past_answers=[past(1), past(1)]),
            "past_answers[1].message_index",
            id="twice",
        ),
        pytest.param(
            request(
                user("a"),
                conversation_pb2.Message(role=conversation_pb2.ROLE_ASSISTANT, text="said"),
                past_answers=[past(1)],
            ),
            "past_answers[0].message_index",
            id="a message with content",
        ),
        pytest.param(
            request(user("a"), ASSISTANT, past_answers=[past(1, prefix="x" * 8193)]),
            "past_answers[0].prefix",
            id="a long prefix",
        ),
        pytest.param(
            request(
                user("a"),
                ASSISTANT,
                ASSISTANT,
                past_answers=[past(1, *[1] * (1 << 19)), past(2, *[1] * (1 << 19 | 1))],
            ),
            "past_answers",
            id="too many ids together",
        ),
        pytest.param(
            request(user("a"), ASSISTANT, past_answers=[past(1, 9999)]),
            "past_answers[0].answer.answer_token_ids[0]",
            id="a wrong id in the past",
        ),
        pytest.param(
            request(user("x" * 100_001), continuation=tokenizer_pb2.Continuation()),
            "messages",
            id="too much new text",
        ),
    ],
)
async def test_what_cannot_be_is_refused_by_its_name(
    stub: Stub, made: tokenizer_pb2.RenderRequest, words: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Render(made, timeout=30)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert str(caught.value.details()).startswith(f"{words}: ")
