"""An unmodified openai client through the edge: the exception classes that it promises."""

import asyncio

import openai
import pytest
from edge_process import EVENTS, Edge

MESSAGES: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("reason", "error_class"),
    [
        ("INVALID_ARGUMENT", openai.BadRequestError),
        ("UNAUTHENTICATED", openai.AuthenticationError),
        ("PERMISSION_DENIED", openai.PermissionDeniedError),
        ("MODEL_NOT_FOUND", openai.NotFoundError),
        ("GENERATION_CONFLICT", openai.ConflictError),
        ("RATE_LIMITED", openai.RateLimitError),
        ("INTERNAL", openai.InternalServerError),
        ("UNAVAILABLE", openai.InternalServerError),
    ],
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_an_error_raises_the_clients_own_class(
    edge: Edge, reason: str, error_class: type[openai.APIStatusError], stream: bool
) -> None:
    async with openai.AsyncOpenAI(
        base_url=f"{edge.url}/v1", api_key="EMPTY", max_retries=0
    ) as client:
        with pytest.raises(error_class) as caught:
            await client.chat.completions.create(
                model="m",
                messages=MESSAGES,
                stream=stream,
                extra_body={"do": "fail", "reason": reason, "param": "model"},
            )
    assert caught.value.body == {
        "message": "the message",
        "type": caught.value.type,
        "param": "model",
        "code": caught.value.code,
    }
    assert caught.value.request_id


LARGE: list[openai.types.chat.ChatCompletionMessageParam] = [
    {"role": "user", "content": "x" * 40_000_000}
]


async def test_a_body_of_40_mb_raises_a_status_error_with_413(edge: Edge) -> None:
    async with openai.AsyncOpenAI(
        base_url=f"{edge.url}/v1", api_key="EMPTY", max_retries=0
    ) as client:
        with pytest.raises(openai.APIStatusError) as caught:
            await client.chat.completions.create(model="m", messages=LARGE)
    assert (caught.value.status_code, caught.value.code) == (413, "request_too_large")


async def test_a_body_of_40_mb_raises_the_same_in_a_synchronous_client(edge: Edge) -> None:
    with openai.OpenAI(base_url=f"{edge.url}/v1", api_key="EMPTY", max_retries=0) as client:
        call = asyncio.to_thread(client.chat.completions.create, model="m", messages=LARGE)
        with pytest.raises(openai.APIStatusError) as caught:
            await call
    assert (caught.value.status_code, caught.value.code) == (413, "request_too_large")


async def test_a_stream_iterates_to_its_end(edge: Edge) -> None:
    async with openai.AsyncOpenAI(base_url=f"{edge.url}/v1", api_key="EMPTY") as client:
        stream = await client.chat.completions.create(
            model="m", messages=MESSAGES, stream=True, extra_body={"do": "stream"}
        )
        chunks = [chunk async for chunk in stream]
    assert len(chunks) == len(EVENTS) - 1
