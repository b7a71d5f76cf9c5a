"""Answers to random valid parameters against the openai package's own types, strictly: what they do not know is listed."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from edge_process import error_of
from event_stream import check_headers, events_of, read_chat
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel
from random_requests import random_request
from rest_stack import rest_stack
from sim_stack import LIMIT_S, MODEL

from services.worker.model import read_model

COUNT = 300
AT_ONCE = 8
VOCABULARY = read_model(MODEL, {}).vocabulary_size
BEYOND_OPENAI = {
    "choices.message.reasoning",
    "choices.message.reasoning_content",
    "choices.delta.reasoning",
    "choices.delta.reasoning_content",
}
"""What our answers have beyond OpenAI's types."""
MODEL_BEYOND_OPENAI = {"root", "parent", "max_model_len"}


@pytest.fixture(scope="module")
async def http(tmp_path_factory):
    worker = {"max_model_len": 1024, "sim_output_tokens": 12, "sim_profile": "instant"}
    folder = tmp_path_factory.mktemp("edge")
    async with (
        rest_stack(folder, worker, max_running=64) as stack,
        httpx.AsyncClient(base_url=stack.url, timeout=LIMIT_S) as client,
    ):
        yield client


def beyond(made: BaseModel, path: str = "") -> Iterator[str]:
    """The paths of all keys that the type does not declare."""
    yield from (f"{path}{name}" for name in made.model_extra or ())
    for name in type(made).model_fields:
        value = getattr(made, name)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, BaseModel):
                yield from beyond(one, f"{path}{name}.")


def typed(kind: type[BaseModel], body: dict[str, Any]) -> Any:
    """The body as that type, with the required keys that it must have, and none that is not listed."""
    made = kind.model_validate(body, strict=True)
    assert set(beyond(made)) <= BEYOND_OPENAI, body
    return made


def text_chunk(event: dict[str, Any]) -> Completion:
    """OpenAI has one type for whole text completions and for chunks of them, and forgot that the latter's reason is null."""
    reasons = [choice["finish_reason"] for choice in event["choices"]]
    choices = [{**choice, "finish_reason": "stop"} for choice in event["choices"]]
    made: Completion = typed(Completion, {**event, "choices": choices})
    for choice, reason in zip(made.choices, reasons, strict=True):
        choice.finish_reason = reason
    return made


async def check(http: httpx.AsyncClient, source: random.Random) -> str:
    request = random_request(source, VOCABULARY, 16)
    while request.way.startswith("native"):
        request = random_request(source, VOCABULARY, 16)
    route, body = request.rest()
    usage = request.stream and source.random() < 0.5
    if usage:
        body["stream_options"] = {"include_usage": True}
    if request.way == "chat":
        body |= source.choice([{}, {"return_reasoning": True}, {"enable_thinking": False}])
    answer = await http.post(route, json=body)
    assert answer.status_code == 200, (body, answer.text)
    logprobs = request.logprobs is not None
    if request.stream:
        check_headers(answer)
        events = events_of(answer.text)
        chat = request.way == "chat"
        chunks = [
            typed(ChatCompletionChunk, event) if chat else text_chunk(event) for event in events
        ]
        if usage:
            last = chunks.pop()
            assert last.choices == []
            check_usage(last.usage, request.max_tokens * request.choice_count)
        assert all(chunk.usage is None for chunk in chunks)
        if request.way == "chat":
            told = read_chat(answer.text, with_usage=usage)
            assert sorted(told.choices) == list(range(request.choice_count))
            if not logprobs:
                assert not any(choice.logprobs for choice in told.choices.values())
        else:
            ends = [(c.index, c.finish_reason) for chunk in chunks for c in chunk.choices]
            ended = sorted(index for index, reason in ends if reason)
            assert ended == list(range(request.choice_count))
        return f"{request.way}, streamed"
    made = typed(ChatCompletion if request.way == "chat" else Completion, answer.json())
    assert [choice.index for choice in made.choices] == list(range(request.choice_count))
    assert all(choice.finish_reason in ("stop", "length") for choice in made.choices)
    assert all((choice.logprobs is not None) == logprobs for choice in made.choices)
    if request.way == "chat":
        assert all(choice.message.content is not None for choice in made.choices)
        assert all(choice.message.role == "assistant" for choice in made.choices)
    check_usage(made.usage, request.max_tokens * request.choice_count)
    return request.way


def check_usage(usage: Any, most: int) -> None:
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 0 <= usage.prompt_tokens_details.cached_tokens <= usage.prompt_tokens
    assert 0 < usage.completion_tokens <= most


async def test_answers_to_random_parameters_are_of_openais_types(http):
    seeds = iter(range(COUNT))

    async def one_after_another() -> list[str]:
        return [await check(http, random.Random(seed)) for seed in seeds]

    kinds = await asyncio.gather(*(one_after_another() for _ in range(AT_ONCE)))
    counts = Counter(kind for some in kinds for kind in some)
    assert set(counts) == {way + s for way in ("chat", "ids", "text") for s in ("", ", streamed")}
    assert min(counts.values()) > COUNT // 20


async def test_models_are_of_openais_type(http):
    body = (await http.get("/v1/models")).json()
    assert list(body) == ["object", "data"]
    for entry in body["data"]:
        made = Model.model_validate(entry, strict=True)
        assert set(made.model_extra or ()) <= MODEL_BEYOND_OPENAI


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_has_exactly_openais_four_keys(http, stream):
    answer = await http.post("/v1/chat/completions", json={"messages": [], "stream": stream})
    assert answer.status_code == 400
    assert json.loads(answer.text) == {"error": error_of(answer)}
