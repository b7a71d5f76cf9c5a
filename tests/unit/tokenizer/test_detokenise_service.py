"""Detokenise over gRPC: many texts on one stream."""

import asyncio
from collections.abc import AsyncGenerator

import grpc
import pytest
from google.protobuf import json_format
from hotline.v1 import tokenizer_pb2
from tokenizer_kit import Stub

from services.tokenizer.model_folder import ModelFolder

Input = tokenizer_pb2.DetokeniseInput
Output = tokenizer_pb2.DetokeniseOutput


class Texts:
    """The client's side of one stream."""

    def __init__(self, stub: Stub, folder: ModelFolder) -> None:
        self.call = stub.Detokenise()
        self._folder = folder

    def open(self, handle: int, **options: object) -> Input:
        return Input(handle=handle, open=tokenizer_pb2.DetokeniseOpen(**options))  # type: ignore[arg-type]

    def tokens(self, handle: int, text: str, last: bool = False) -> Input:
        ids = self._folder.backend.encode(text, add_special_tokens=False).ids
        return Input(handle=handle, tokens=tokenizer_pb2.DetokeniseTokens(token_ids=ids, last=last))

    async def write(self, *inputs: Input) -> None:
        await self.call.write(tokenizer_pb2.DetokeniseRequest(inputs=inputs))

    async def read(self) -> list[Output]:
        response = await asyncio.wait_for(self.call.read(), 10)
        assert isinstance(response, tokenizer_pb2.DetokeniseResponse)
        return list(response.outputs)


@pytest.fixture
async def texts(stub: Stub, folder: ModelFolder) -> AsyncGenerator[Texts, None]:
    texts = Texts(stub, folder)
    yield texts
    texts.call.cancel()


async def test_ids_become_text_at_once_and_the_end_is_told(texts: Texts) -> None:
    await texts.write(texts.open(1), texts.tokens(1, "你好"))
    assert [(output.text, output.finished) for output in await texts.read()] == [("你好", False)]
    await texts.write(texts.tokens(1, "!", last=True))
    (end,) = await texts.read()
    assert (end.text, end.finished, end.stop_match, end.end_tag) == ("!", True, "", False)
    assert end.consumed_tokens == len(texts.tokens(1, "你好!").tokens.token_ids)


async def test_many_texts_share_the_stream_without_mixing(texts: Texts) -> None:
    await texts.write(*(texts.open(handle) for handle in range(200)))
    await texts.write(*(texts.tokens(handle, f"text {handle}", True) for handle in range(200)))
    told = {output.handle: output.text for output in await texts.read()}
    assert told == {handle: f"text {handle}" for handle in range(200)}


async def test_thought_answer_and_action_arrive(texts: Texts) -> None:
    written = '<think>T</think>\n<answer>do(action="Tap", element=[1,2])</answer>'
    await texts.write(texts.open(1, split_reasoning=True), texts.tokens(1, written))
    (output,) = await texts.read()
    assert (output.reasoning, output.text) == ("T", 'do(action="Tap", element=[1,2])')
    assert (output.finished, output.end_tag, output.action.name) == (True, True, "Tap")
    assert json_format.MessageToDict(output.action.arguments) == {"element": [1, 2]}


async def test_case_20_the_stop_string_that_appeared_is_reported(texts: Texts) -> None:
    await texts.write(texts.open(1, stop=["never", "two"]), texts.tokens(1, "one two three"))
    (output,) = await texts.read()
    assert (output.text, output.finished, output.stop_match) == ("one ", True, "two")


async def test_one_bad_handle_never_hurts_another(texts: Texts) -> None:
    bad = tokenizer_pb2.DetokeniseTokens(token_ids=[10**6])
    await texts.write(
        texts.open(1),
        texts.open(2),
        Input(handle=1, tokens=bad),
        texts.tokens(2, "fine"),
        texts.tokens(3, "nobody"),
    )
    outputs = {output.handle: output for output in await texts.read()}
    assert "vocabulary" in outputs[1].error
    assert outputs[3].error == "no such handle is open"
    assert (outputs[2].text, outputs[2].error) == ("fine", "")
    await texts.write(texts.tokens(2, "!", last=True))
    assert (await texts.read())[0].finished


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        pytest.param([Input(handle=1, close=True)] * 4097, "4097 items", id="inputs"),
        pytest.param(
            [Input(handle=1, tokens=tokenizer_pb2.DetokeniseTokens(token_ids=[1] * (2**20 + 1)))],
            "1048577 token ids",
            id="ids",
        ),
    ],
)
async def test_a_message_beyond_the_limits_ends_the_stream(
    texts: Texts, inputs: list[Input], words: str
) -> None:
    await texts.write(*inputs)
    with pytest.raises(grpc.aio.AioRpcError, match=words) as caught:
        await texts.call.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_the_stream_s_end_drops_its_handles(texts: Texts, stub: Stub) -> None:
    status = tokenizer_pb2.GetTokenizerStatusRequest()
    await texts.write(texts.open(1), texts.open(2), texts.tokens(1, "a"))
    await texts.read()
    assert (await stub.GetTokenizerStatus(status)).open_handles == 2
    await texts.call.done_writing()
    assert await texts.call.read() is grpc.aio.EOF
    assert (await stub.GetTokenizerStatus(status)).open_handles == 0


async def test_a_state_rebuilt_on_another_stream_goes_on_where_the_first_one_was(
    texts: Texts, stub: Stub, folder: ModelFolder
) -> None:
    """Case 31: a new tokenizer is told the ids so far, and the gateway skips the text that it knows."""
    other = Texts(stub, folder)
    begun, rest = "<think>red</think>\n<answer>do(", "finish)</answer>"
    await texts.write(texts.open(1), texts.tokens(1, begun), texts.tokens(1, rest))
    whole = "".join(output.text for output in await texts.read())
    await other.write(other.open(9), other.tokens(9, begun))
    first = (await other.read())[0].text
    await other.write(other.tokens(9, rest))
    assert first + (await other.read())[0].text == whole
    other.call.cancel()
