"""Parameters on their way through gateway, tokenizer and worker: what only those behind know is told by the client's name."""

import asyncio
import json
from typing import Any

import grpc
import pytest
from google.api.httpbody_pb2 import HttpBody
from grpc import aio
from hotline.v1 import openai_pb2_grpc, sampling_pb2
from sim_stack import LIMIT_S, MODEL, hello, sim_stack, started_tokenizer, started_worker

from services.runtime.status import from_rpc_error
from services.worker.model import read_model

VOCABULARY = read_model(MODEL, {}).vocabulary_size
HI = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "ignore_eos": True}


@pytest.fixture(scope="module")
async def stack():
    worker = await started_worker()
    tokenizer = await started_tokenizer(worker.port)
    async with sim_stack(tokenizer, worker) as running:
        yield running
    await tokenizer.stop()
    await worker.stop()


async def answer(stack: Any, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """The HTTP status, and the one JSON object of an answer that is not streamed, as the edge would see them."""
    request = HttpBody(content_type="application/json", data=json.dumps(body).encode())
    call = openai_pb2_grpc.OpenAIServiceStub(stack.channel).CreateChatCompletion(request)
    async with asyncio.timeout(LIMIT_S):
        metadata = dict(await call.initial_metadata())
        first = await call.read()
    assert first is not aio.EOF
    return int(metadata.get("x-http-status", 200)), json.loads(first.data)


@pytest.mark.parametrize(
    ("fields", "param", "value"),
    [
        pytest.param({"top_k": VOCABULARY + 1}, "top_k", VOCABULARY + 1, id="top_k"),
        pytest.param(
            {"extra_body": {"top_k": VOCABULARY + 1}},
            "extra_body.top_k",
            VOCABULARY + 1,
            id="nested",
        ),
        pytest.param({"logit_bias": {str(VOCABULARY): 1}}, "logit_bias", VOCABULARY, id="bias"),
        pytest.param({"stop_token_ids": [5, VOCABULARY]}, "stop_token_ids", VOCABULARY, id="stop"),
        pytest.param({"top_p": 1e-50}, "top_p", 0.0, id="zero in 32 bits"),
    ],
)
async def test_what_only_the_worker_knows_is_refused_by_the_clients_name(
    stack, fields, param, value
):
    status, body = await answer(stack, HI | fields)
    error = body["error"]
    assert (status, error["param"], error["code"]) == (400, param, "invalid_value")
    assert error["message"].startswith(f"{param}: {value!r} is not allowed; must be ")
    assert "sampling" not in error["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        pytest.param({"guided_json": "{"}, "guided_json", id="schema"),
        pytest.param({"guided_grammar": "x" * 9_000}, "guided_grammar", id="grammar"),
        pytest.param(
            {"guided_regex": "a", "response_format": {"type": "json_object"}},
            "guided_regex",
            id="two constraints",
        ),
        pytest.param({"n": 10_000}, "n", id="n"),
        pytest.param({"stop": ["x"] * 10_000}, "stop", id="stops"),
        pytest.param({"temperature": True}, "temperature", id="a boolean for a number"),
        pytest.param({"temperature": float("nan")}, "temperature", id="NaN"),
        pytest.param({"stream_options": {"include_usage": True}}, "stream_options", id="no stream"),
    ],
)
async def test_a_wrong_parameter_is_400_and_afterwards_the_stack_still_answers(
    stack, fields, param
):
    status, body = await answer(stack, HI | fields)
    assert (status, body["error"]["param"]) == (400, param)
    status, body = await answer(stack, HI)
    assert (status, body["usage"]["completion_tokens"]) == (200, 3)


async def test_the_simulator_says_that_it_has_no_structured_output(stack):
    status, body = await answer(stack, HI | {"guided_regex": "a+"})
    assert (status, body["error"]["code"], body["error"]["param"]) == (
        *(501, "unimplemented"),
        "guided_regex",
    )


async def test_every_parameter_at_once_is_served(stack):
    given = {
        "temperature": 0.5,
        "top_p": 0.85,
        "top_k": 40,
        "min_p": 0.1,
        "seed": -5,
        "n": 2,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "repetition_penalty": 1.1,
        "stop": "never",
        "stop_token_ids": [],
        "min_tokens": 1,
        "logit_bias": {"5": -1},
        "max_completion_tokens": 4,
        "priority": -3,
        "user": "me",
        "store": True,
        "enable_thinking": False,
        "return_reasoning": True,
        "response_format": {"type": "text"},
    }
    status, body = await answer(stack, HI | given)
    assert (status, len(body["choices"])) == (200, 2)
    assert body["usage"]["completion_tokens"] == 8


@pytest.mark.parametrize(
    ("output", "field"),
    [
        pytest.param(sampling_pb2.StructuredOutput(), "structured_output", id="nothing"),
        pytest.param(
            sampling_pb2.StructuredOutput(grammar="x" * 9_000),
            "structured_output.grammar",
            id="grammar",
        ),
    ],
)
async def test_a_native_client_reads_the_path_in_its_own_request(stack, output, field):
    request = hello(3)
    request.sampling.structured_output.CopyFrom(output)
    request.sampling.structured_output.SetInParent()
    with pytest.raises(grpc.RpcError) as raised:
        await stack.inference.Generate(request, timeout=LIMIT_S).read()
    assert from_rpc_error(raised.value, "gateway").field == f"sampling.{field}"
