"""Tokenize and DecodeTokens, over a real server, against the tokenizers library."""

import asyncio
from typing import Any

import grpc
import pytest
from grpc import aio
from hotline.v1 import tokenizer_pb2
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_kit import Stub, examples

from services.runtime.plain_text_limits import MAX_IDS, MAX_TEXT_BYTES
from services.runtime.status import from_rpc_error
from services.tokenizer.model import Model
from services.tokenizer.model_folder import ModelFolder

TEXTS = [
    pytest.param("", id="nothing"),
    pytest.param("Hello, world!  \n\ttabs", id="English"),
    pytest.param("打开微信，给张三发消息。", id="Chinese"),
    pytest.param("👩‍👩‍👧 e\u0301 \u0000 \ufffd", id="odd characters"),
    pytest.param("a" * 10_000, id="long"),
]


async def tokenized(stub: Stub, text: str) -> list[int]:
    answer = await stub.Tokenize(tokenizer_pb2.TokenizeRequest(text=text), timeout=30)
    return list(answer.token_ids)


async def decoded(stub: Stub, ids: list[int], skip_special_tokens: bool = False) -> str:
    request = tokenizer_pb2.DecodeTokensRequest(
        token_ids=ids, skip_special_tokens=skip_special_tokens
    )
    text: str = (await stub.DecodeTokens(request, timeout=30)).text
    return text


async def refusal(call: Any) -> dict[str, str]:
    with pytest.raises(aio.AioRpcError) as raised:
        await call
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    return from_rpc_error(raised.value, "the tokenizer").metadata


@pytest.mark.parametrize("text", TEXTS)
async def test_a_text_becomes_the_ids_that_the_library_gives_it(
    stub: Stub, folder: ModelFolder, text: str
) -> None:
    assert await tokenized(stub, text) == folder.backend.encode(text, add_special_tokens=False).ids


@given(text=st.text(max_size=40))
@examples(300)
def test_any_text_comes_back_from_its_ids(model: Model, text: str) -> None:
    assert model.plain is not None
    assert model.plain.decode(model.plain.encode(text), skip_special_tokens=False) == text


async def test_control_tokens_spelt_in_a_text_stay_plain_text(
    stub: Stub, folder: ModelFolder
) -> None:
    for spelling in folder.control:
        ids = await tokenized(stub, f"a{spelling}b")
        assert not set(ids) & set(folder.control.values()), spelling
        assert await decoded(stub, ids) == f"a{spelling}b"


@pytest.mark.parametrize(
    ("skip", "text"),
    [pytest.param(False, "<|user|>Hi", id="kept"), pytest.param(True, "Hi", id="left out")],
)
async def test_special_tokens_are_shown_or_left_out(
    stub: Stub, folder: ModelFolder, skip: bool, text: str
) -> None:
    ids = [folder.control["<|user|>"], *await tokenized(stub, "Hi")]
    assert await decoded(stub, ids, skip) == text


async def test_half_a_character_becomes_the_replacement_character(stub: Stub) -> None:
    ids = await tokenized(stub, "\U0001f9ea")
    assert len(ids) > 1
    assert await decoded(stub, ids[:-1]) == "\ufffd"


async def test_no_ids_are_no_text(stub: Stub) -> None:
    assert await decoded(stub, []) == ""


async def test_a_text_at_the_limit_passes_and_one_above_names_field_value_and_limit(
    stub: Stub,
) -> None:
    assert await tokenized(stub, "好" * (MAX_TEXT_BYTES // 3))
    metadata = await refusal(tokenized(stub, "x" * (MAX_TEXT_BYTES + 1)))
    assert metadata == {
        "field": "text",
        "value": "'1048577 bytes'",
        "limit": "at most 1048576 bytes of UTF-8",
    }


async def test_ids_at_the_limit_pass_and_more_name_field_value_and_limit(stub: Stub) -> None:
    [letter] = await tokenized(stub, "a")
    assert await decoded(stub, [letter] * MAX_IDS) == "a" * MAX_IDS
    metadata = await refusal(decoded(stub, [letter] * (MAX_IDS + 1)))
    assert metadata == {
        "field": "token_ids",
        "value": "'1048577 ids'",
        "limit": "at most 1048576 ids",
    }


@pytest.mark.parametrize("at", [0, 70_000])
async def test_an_id_outside_the_vocabulary_is_named_by_its_place(
    stub: Stub, folder: ModelFolder, at: int
) -> None:
    size = folder.vocabulary_size
    metadata = await refusal(decoded(stub, [1] * at + [size, 2**32 - 1]))
    assert metadata["field"] == f"token_ids[{at}]"
    assert metadata["value"] == str(size)
    assert metadata["limit"] == f"below {size}, the size of the vocabulary"
    assert await decoded(stub, [size - 1]) is not None


async def test_the_largest_calls_leave_the_event_loop_to_others(stub: Stub) -> None:
    loop, lags_s = asyncio.get_running_loop(), [0.0]

    async def watch() -> None:
        while True:
            before_s = loop.time()
            await asyncio.sleep(0.01)
            lags_s.append(loop.time() - before_s - 0.01)

    ids = await tokenized(stub, "Hello 好" * (MAX_TEXT_BYTES // 9))
    watcher = asyncio.create_task(watch())
    try:
        await decoded(stub, ids)
        await tokenized(stub, "<|user" * (MAX_TEXT_BYTES // 6))
    finally:
        watcher.cancel()
    assert max(lags_s) < 1
