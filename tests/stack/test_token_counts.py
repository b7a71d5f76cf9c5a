"""CountTokens, Tokenize and Detokenise through the gateway: the same counts as generations, typed refusals."""

import io

import grpc
import pytest
from grpc import aio
from hotline.v1 import conversation_pb2, inference_pb2
from PIL import Image
from sim_stack import sim_stack, started_tokenizer, started_worker

from services.runtime.plain_text_limits import MAX_IDS, MAX_TEXT_BYTES
from services.runtime.status import from_rpc_error

CONTEXT_TOKENS = 2048


@pytest.fixture(scope="module")
async def stack():
    worker = await started_worker(max_model_len=CONTEXT_TOKENS)
    tokenizer = await started_tokenizer(worker.port)
    async with sim_stack(tokenizer, worker) as running:
        yield running
    await tokenizer.stop()
    await worker.stop()


def image(width: int, height: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(file, "PNG")
    return file.getvalue()


def user(text: str, *images: bytes) -> conversation_pb2.Message:
    parts = [
        conversation_pb2.Part(image=conversation_pb2.ImagePart(data=data)) for data in images
    ] + [conversation_pb2.Part(text=text)]
    return conversation_pb2.Message(
        role=conversation_pb2.ROLE_USER, parts=conversation_pb2.PartList(parts=parts)
    )


SYSTEM = conversation_pb2.Message(role=conversation_pb2.ROLE_SYSTEM, text="You hold a phone.")
NO_THINKING = conversation_pb2.RenderOptions(enable_thinking=False)


async def refused(call, code: grpc.StatusCode) -> dict[str, str]:
    with pytest.raises(aio.AioRpcError) as raised:
        await call
    assert raised.value.code() is code
    return from_rpc_error(raised.value, "the gateway").metadata


@pytest.mark.parametrize(
    ("messages", "render"),
    [
        pytest.param([user("你好")], None, id="text"),
        pytest.param([SYSTEM, user("Hi"), user("again")], NO_THINKING, id="options"),
        pytest.param([user("Tap it", image(300, 500))], None, id="an image"),
        pytest.param([user("a", image(60, 40), image(500, 90)), user("b")], None, id="two images"),
    ],
)
async def test_a_count_is_what_a_generation_of_the_same_prompt_takes(stack, messages, render):
    counted = await stack.inference.CountTokens(
        inference_pb2.CountTokensRequest(messages=messages, render=render), timeout=30
    )
    request = inference_pb2.GenerateRequest(messages=messages, render=render)
    request.sampling.max_tokens = 1
    call = stack.inference.Generate(request, timeout=30)
    events = [event async for event in call]
    assert counted.prompt_tokens == events[0].accepted.prompt_tokens
    assert counted.prompt_tokens == events[-1].finished.usage.prompt_tokens
    assert counted.context_tokens == CONTEXT_TOKENS


async def test_image_tokens_are_what_the_images_add(stack):
    pieces = []
    for size in ((112, 112), (224, 112), (224, 224)):
        request = inference_pb2.CountTokensRequest(messages=[user("x", image(*size))])
        counted = await stack.inference.CountTokens(request, timeout=30)
        pieces.append((counted.prompt_tokens - counted.image_tokens, counted.image_tokens))
    assert len({text for text, _ in pieces}) == 1
    assert sorted({tokens for _, tokens in pieces}) == [tokens for _, tokens in pieces]
    text = inference_pb2.CountTokensRequest(messages=[user("x")])
    assert (await stack.inference.CountTokens(text, timeout=30)).image_tokens == 0


async def test_a_prompt_longer_than_the_context_is_counted_all_the_same(stack):
    request = inference_pb2.CountTokensRequest(messages=[user("word " * CONTEXT_TOKENS)])
    counted = await stack.inference.CountTokens(request, timeout=30)
    assert counted.prompt_tokens > counted.context_tokens == CONTEXT_TOKENS


async def test_counting_takes_no_place_among_the_generations(stack):
    await stack.inference.CountTokens(
        inference_pb2.CountTokensRequest(messages=[user("Hi")]), timeout=30
    )
    assert stack.app.admission.running_count == 0
    assert stack.app.registry.running_count == 0


async def test_a_text_comes_back_from_its_ids(stack):
    text = "打开 WeChat <|user|> 👋"
    tokenized = await stack.inference.Tokenize(
        inference_pb2.TokenizeTextRequest(text=text, model="autoglm-phone-9b"), timeout=30
    )
    assert tokenized.context_tokens == CONTEXT_TOKENS
    answer = await stack.inference.Detokenise(
        inference_pb2.DetokeniseIdsRequest(token_ids=tokenized.token_ids), timeout=30
    )
    assert answer.text == text


async def test_special_tokens_are_left_out_where_asked(stack):
    tokenizer = inference_pb2.DetokeniseIdsRequest(token_ids=range(400))
    shown = (await stack.inference.Detokenise(tokenizer, timeout=30)).text
    tokenizer.skip_special_tokens = True
    hidden = (await stack.inference.Detokenise(tokenizer, timeout=30)).text
    assert len(hidden) < len(shown) or "<|user|>" not in shown


async def test_the_largest_text_and_the_most_ids_pass(stack):
    text = "ab" * (MAX_TEXT_BYTES // 2)
    tokenized = await stack.inference.Tokenize(
        inference_pb2.TokenizeTextRequest(text=text), timeout=60
    )
    first = tokenized.token_ids[0]
    request = inference_pb2.DetokeniseIdsRequest(token_ids=[first] * MAX_IDS)
    assert len((await stack.inference.Detokenise(request, timeout=60)).text) >= MAX_IDS


@pytest.mark.parametrize(
    ("method", "request_", "field", "limit"),
    [
        pytest.param(
            "CountTokens",
            inference_pb2.CountTokensRequest(),
            "messages",
            "1 to 1024 messages",
            id="nothing to count",
        ),
        pytest.param(
            "CountTokens",
            inference_pb2.CountTokensRequest(messages=[user("x", b"no image")]),
            "messages[0].content[0]",
            None,
            id="bad image",
        ),
        pytest.param(
            "Tokenize",
            inference_pb2.TokenizeTextRequest(text="x" * (MAX_TEXT_BYTES + 1)),
            "text",
            "at most 1048576 bytes of UTF-8",
            id="long text",
        ),
        pytest.param(
            "Detokenise",
            inference_pb2.DetokeniseIdsRequest(token_ids=[0] * (MAX_IDS + 1)),
            "token_ids",
            "at most 1048576 ids",
            id="many ids",
        ),
        pytest.param(
            "Detokenise",
            inference_pb2.DetokeniseIdsRequest(token_ids=[1, 2**31]),
            "token_ids[1]",
            None,
            id="id outside the vocabulary",
        ),
    ],
)
async def test_a_refusal_names_field_and_limit(stack, method, request_, field, limit):
    call = getattr(stack.inference, method)(request_, timeout=30)
    metadata = await refused(call, grpc.StatusCode.INVALID_ARGUMENT)
    assert metadata["field"] == field
    assert limit in (None, metadata.get("limit"))


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("CountTokens", inference_pb2.CountTokensRequest(model="gpt", messages=[user("x")])),
        ("Tokenize", inference_pb2.TokenizeTextRequest(model="gpt", text="x")),
        ("Detokenise", inference_pb2.DetokeniseIdsRequest(model="gpt", token_ids=[1])),
    ],
)
async def test_an_unknown_model_is_not_found(stack, method, request_):
    call = getattr(stack.inference, method)(request_, timeout=30)
    metadata = await refused(call, grpc.StatusCode.NOT_FOUND)
    assert metadata == {"field": "model", "model": "gpt"}
