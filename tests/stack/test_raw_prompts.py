"""Native generations of raw prompts: the same ids as a rendered conversation, typed refusals."""

import grpc
import pytest
from grpc import aio
from hotline.v1 import conversation_pb2, error_pb2, generation_pb2, inference_pb2
from sim_stack import LIMIT_S, sim_stack, started_tokenizer, started_worker

from services.runtime.status import from_rpc_error

CONTEXT_TOKENS = 512
HI = "[gMASK]<sop><|user|>\nHi<|assistant|>\n"


@pytest.fixture(scope="module")
async def stack():
    worker = await started_worker(max_model_len=CONTEXT_TOKENS)
    tokenizer = await started_tokenizer(worker.port)
    async with sim_stack(tokenizer, worker) as running:
        yield running
    await tokenizer.stop()
    await worker.stop()


async def events_of(stack, prompt, **fields) -> list[generation_pb2.GenerationEvent]:
    request = inference_pb2.GenerateRequest(prompt=prompt, **fields)
    request.sampling.max_tokens = 3
    return [event async for event in stack.inference.Generate(request, timeout=LIMIT_S)]


async def parsed(stack, text: str) -> list[int]:
    request = inference_pb2.TokenizeTextRequest(text=text, parse_special_tokens=True)
    return list((await stack.inference.Tokenize(request, timeout=LIMIT_S)).token_ids)


def ids(values) -> inference_pb2.RawPrompt:
    return inference_pb2.RawPrompt(token_ids=inference_pb2.TokenIdList(values=values))


async def test_text_and_ids_and_messages_of_one_prompt_are_the_same_length(stack):
    message = conversation_pb2.Message(role=conversation_pb2.ROLE_USER, text="Hi")
    counted = await stack.inference.CountTokens(
        inference_pb2.CountTokensRequest(messages=[message]), timeout=LIMIT_S
    )
    by_text = await events_of(stack, inference_pb2.RawPrompt(text=HI))
    by_ids = await events_of(stack, ids(await parsed(stack, HI)))
    for events in (by_text, by_ids):
        assert events[0].accepted.prompt_tokens == counted.prompt_tokens
        assert events[-1].finished.usage.completion_tokens == 3


async def test_ids_are_generated_from_without_a_renderer(stack):
    events = await events_of(stack, ids([1] * (CONTEXT_TOKENS - 1)))
    assert events[-1].finished.usage.prompt_tokens == CONTEXT_TOKENS - 1


@pytest.mark.parametrize(
    ("prompt", "metadata"),
    [
        pytest.param(
            ids([1] * CONTEXT_TOKENS),
            {
                "field": "prompt.token_ids.values",
                "prompt_tokens": str(CONTEXT_TOKENS),
                "context_tokens": str(CONTEXT_TOKENS),
            },
            id="ids beyond the context",
        ),
        pytest.param(
            inference_pb2.RawPrompt(text="word " * 2000),
            {"field": "prompt.text", "context_tokens": str(CONTEXT_TOKENS)},
            id="a text beyond the context",
        ),
    ],
)
async def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(stack, prompt, metadata):
    with pytest.raises(aio.AioRpcError) as raised:
        await events_of(stack, prompt)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    said = from_rpc_error(raised.value, "the gateway")
    assert metadata.items() <= said.metadata.items()
    assert said.message.startswith(f"{said.field}: the prompt has")


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        pytest.param(
            ids([1, 4_000_000_000]),
            "prompt.token_ids.values[1]: 4000000000 is not allowed",
            id="an id outside the vocabulary",
        ),
        pytest.param(
            inference_pb2.RawPrompt(text="<|begin_of_image|><|image|><|end_of_image|>Hi"),
            "prompt.text: 'a prompt with placeholder tokens",
            id="an image's placeholder",
        ),
    ],
)
async def test_what_only_the_worker_can_see_ends_the_stream_by_the_prompt_s_name(
    stack, prompt, words
):
    failed = (await events_of(stack, prompt))[-1].failed
    assert failed.reason == error_pb2.ERROR_REASON_INVALID_ARGUMENT
    assert failed.message.startswith(words)
