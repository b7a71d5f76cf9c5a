"""logprobs and n through a real Envoy, and natively: every choice whole, every token once, as the worker made them."""

import asyncio
import codecs
import json
import math
from collections import defaultdict
from dataclasses import dataclass, field

import httpx
import pytest
from hotline.v1 import sampling_pb2, worker_pb2, worker_pb2_grpc
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.completion_choice import Logprobs
from rest_stack import MODEL_NAME, rest_stack
from several import told
from sim_stack import LIMIT_S, hello

from services.runtime.channel import open_channel

CHAT = "/v1/chat/completions"
TOKENS = 24


@pytest.fixture(scope="module")
async def stack(tmp_path_factory):
    worker = {"max_model_len": 512, "sim_step_ms": 1, "max_num_seqs": 64}
    async with rest_stack(tmp_path_factory.mktemp("edge"), worker) as running:
        yield running


@pytest.fixture(scope="module")
async def http(stack):
    async with httpx.AsyncClient(base_url=stack.url, timeout=LIMIT_S) as client:
        yield client


@dataclass
class Choice:
    """What a client was told of one choice."""

    text: str = ""
    roles: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    logprobs: list[dict] = field(default_factory=list)


def body(**fields: object) -> dict[str, object]:
    messages = [{"role": "user", "content": "Hi"}]
    given = {"model": MODEL_NAME, "messages": messages, "ignore_eos": True, "max_tokens": TOKENS}
    return {**given, **fields}


async def whole(http, **fields):
    """Id, choices and usage of an answer without stream."""
    answer = await http.post(CHAT, json=body(**fields))
    assert answer.status_code == 200, answer.text
    made = answer.json()
    ChatCompletion.model_validate(made, strict=True)
    choices = {}
    for one in made["choices"]:
        message, logprobs = one["message"], one["logprobs"]
        choices[one["index"]] = Choice(
            message["content"],
            [message["role"]],
            [one["finish_reason"]],
            logprobs["content"] if logprobs else [],
        )
        assert (logprobs is not None) == bool(fields.get("logprobs"))
    return made["id"], choices, made["usage"]


async def streamed(http, **fields):
    """The same of a stream."""
    asked = body(stream=True, stream_options={"include_usage": True}, **fields)
    answer = await http.post(CHAT, json=asked)
    lines = answer.text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    choices = defaultdict(Choice)
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk, strict=True)
        for one in chunk["choices"]:
            told, delta = choices[one["index"]], one["delta"]
            assert not told.reasons, "nothing comes after the reason"
            told.text += delta.get("content", "")
            told.roles += [delta["role"]] if "role" in delta else []
            told.reasons += [one["finish_reason"]] if one["finish_reason"] else []
            if "logprobs" in one:
                assert fields.get("logprobs"), "they were not asked for"
                assert one["logprobs"]["refusal"] is None
                told.logprobs += one["logprobs"]["content"]
    return chunks[0]["id"], dict(choices), chunks[-1]["usage"]


FORMS = pytest.mark.parametrize("form", [whole, streamed])


def beginning(shown: bytes) -> str:
    """The text of some bytes, the last of which may be a part of a character."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(shown)


def bytes_of(choice: Choice) -> bytes:
    return b"".join(bytes(entry["bytes"]) for entry in choice.logprobs)


async def from_the_worker(stack, completion_id: str, **sampling: object) -> dict[int, list[float]]:
    """The log-probabilities of each choice, from the worker called directly with the same key."""
    key = completion_id.removeprefix("chatcmpl-")
    request = worker_pb2.WorkerGenerateRequest(
        generation_id=f"direct-{key}",
        trace_key=key,
        prompt_token_ids=[5, 6, 7],
        sampling=sampling_pb2.SamplingParameters(ignore_eos=True, max_tokens=TOKENS, **sampling),
    )
    found = defaultdict(list)
    async with open_channel(f"127.0.0.1:{stack.behind.worker.port}") as channel:
        stub = worker_pb2_grpc.WorkerServiceStub(channel)
        async for event in stub.Generate(request, timeout=LIMIT_S):
            tokens = event.tokens
            found[tokens.choice_index] += [entry.sampled.logprob for entry in tokens.logprobs]
    return found


@FORMS
@pytest.mark.parametrize("n", [1, 2, 3, 16])
async def test_every_choice_has_one_role_one_reason_and_usage_is_over_all(http, form, n):
    _, choices, usage = await form(http, n=n)
    assert sorted(choices) == list(range(n))
    for choice in choices.values():
        assert choice.roles == ["assistant"]
        assert choice.reasons == ["length"]
        assert choice.text
        assert not choice.logprobs
    assert len({choice.text for choice in choices.values()}) == n
    assert usage["completion_tokens"] == n * TOKENS


@FORMS
@pytest.mark.parametrize(("n", "top"), [(1, 0), (3, 2), (2, 20)])
async def test_log_probabilities_are_those_of_the_worker_and_their_bytes_are_the_text(
    stack, http, form, n, top
):
    completion_id, choices, _ = await form(http, n=n, logprobs=True, top_logprobs=top)
    direct = await from_the_worker(stack, completion_id, n=n, logprobs=top)
    assert sorted(choices) == list(range(n))
    for index, choice in choices.items():
        assert [entry["logprob"] for entry in choice.logprobs] == direct[index]
        assert bytes_of(choice).decode(errors="replace") == choice.text
        for entry in choice.logprobs:
            assert entry["token"] == bytes(entry["bytes"]).decode(errors="replace")
            assert len(entry["top_logprobs"]) == top
            assert not top or entry["top_logprobs"][0]["bytes"] == entry["bytes"]
            assert all(math.isfinite(one["logprob"]) for one in entry["top_logprobs"])


async def test_a_stopped_choice_does_not_cost_the_others(stack, http):
    plain = hello(TOKENS, generation_id="stopped-choice")
    plain.sampling.n = 3
    undisturbed = await told(stack.behind, plain)
    texts = undisturbed.text
    stop = next(
        texts[1][at : at + 2]
        for at in range(4, len(texts[1]) - 2)
        if not any(texts[1][at : at + 2] in texts[other] for other in (0, 2))
    )
    plain.sampling.stop.append(stop)
    plain.sampling.logprobs = 1
    # The simulator's tokens follow from the id, which names another request from here on.
    stack.behind.app.registry.kept.forget(("anonymous", "stopped-choice"))
    stopped = await told(stack.behind, plain)
    assert (stopped.text[0], stopped.text[2]) == (texts[0], texts[2])
    assert stopped.text[1] == texts[1][: texts[1].index(stop)]
    reasons = [match for _, match in stopped.end[3]]
    assert reasons == ["", stop, ""]
    assert stopped.end[2] < undisturbed.end[2], "what came after the match is not counted"
    shown = b"".join(entry.sampled.token for entry in stopped.logprobs[1])
    assert stopped.text[1].startswith(beginning(shown)), "none of the stop string's"
    assert len(stopped.logprobs[0]) == TOKENS
    await stack.behind.until(lambda: stack.behind.app.registry.running_count == 0)


@FORMS
async def test_a_stop_string_leaves_out_its_tokens(http, form):
    _, choices, _ = await form(http, logprobs=True, stop=["e", "a", "1", "的", "o"])
    [choice] = choices.values()
    assert choice.text.startswith(beginning(bytes_of(choice)))


@FORMS
async def test_what_was_split_off_has_none(http, form):
    _, choices, _ = await form(http, logprobs=True, return_reasoning=True)
    [choice] = choices.values()
    assert bytes_of(choice).decode(errors="replace") == choice.text


@pytest.mark.parametrize("stream", [False, True])
async def test_text_completions_have_the_older_shape(http, stream):
    asked = {"model": MODEL_NAME, "prompt": "Hi", "logprobs": 2, "max_tokens": 8, "n": 2}
    answer = await http.post("/v1/completions", json={**asked, "stream": stream})
    assert answer.status_code == 200
    lines = answer.text.split("\n\n")[:-2] if stream else [answer.text]
    bodies = [json.loads(line.removeprefix("data: ")) for line in lines]
    texts, counts, offsets = defaultdict(str), defaultdict(int), defaultdict(list)
    for one in bodies:
        for choice in one["choices"]:
            texts[choice["index"]] += choice["text"]
            if choice["logprobs"] is not None:
                logprobs = Logprobs.model_validate(choice["logprobs"], strict=True)
                counts[choice["index"]] += len(logprobs.tokens)
                offsets[choice["index"]] += logprobs.text_offset
    assert all(0 < counts[index] <= 8 for index in (0, 1))
    for index, text in texts.items():
        assert offsets[index] == sorted(offsets[index])
        assert offsets[index][0] == 0
        assert offsets[index][-1] < len(text) or text.endswith("\ufffd")


async def test_many_at_once_are_never_mixed(stack, http):
    asked = [form(http, n=2, logprobs=True) for form in (whole, streamed) for _ in range(10)]
    for completion_id, choices, _ in await asyncio.gather(*asked):
        direct = await from_the_worker(stack, completion_id, n=2, logprobs=0)
        found = {
            index: [entry["logprob"] for entry in one.logprobs] for index, one in choices.items()
        }
        assert found == direct
