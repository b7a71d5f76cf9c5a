"""POST /v1/completions through a real Envoy: every form of a prompt, streamed and whole, and what is refused."""

import asyncio
import json
from collections import defaultdict

import httpx
import openai
import pytest
from edge_process import error_of
from openai.types import Completion
from rest_stack import MODEL_NAME, rest_stack
from sim_stack import LIMIT_S

CONTEXT_TOKENS = 512
COMPLETIONS = "/v1/completions"


@pytest.fixture(scope="module")
async def stack(tmp_path_factory):
    worker = {"max_model_len": CONTEXT_TOKENS, "sim_step_ms": 1, "max_num_seqs": 16}
    async with rest_stack(tmp_path_factory.mktemp("edge"), worker) as running:
        yield running


@pytest.fixture(scope="module")
async def client(stack):
    async with stack.client() as client:
        yield client


@pytest.fixture(scope="module")
async def http(stack):
    async with httpx.AsyncClient(base_url=stack.url, timeout=LIMIT_S) as client:
        yield client


def body(prompt: object = "Hi", **fields: object) -> dict[str, object]:
    return {"model": MODEL_NAME, "prompt": prompt, "ignore_eos": True, **fields}


async def ids_of(http, text: str) -> list[int]:
    answer = await http.post("/v1/tokenize", json={"prompt": text})
    ids: list[int] = answer.json()["tokens"]
    return ids


PROMPTS = [
    pytest.param("Hello there", 1, id="a text"),
    pytest.param(["Hello", "there, you", "世界"], 3, id="texts"),
    pytest.param([1, 2, 3], 1, id="ids"),
    pytest.param([[1, 2], [3], [4, 5, 6]], 3, id="lists of ids"),
]


@pytest.mark.parametrize(("prompt", "count"), PROMPTS)
@pytest.mark.parametrize("n", [1, 2])
async def test_a_whole_answer_is_the_openai_package_s_own_type(http, client, prompt, count, n):
    answer = await http.post(COMPLETIONS, json=body(prompt, n=n, max_tokens=4))
    assert answer.status_code == 200
    completion = Completion.model_validate(answer.json(), strict=True)
    assert completion.object == "text_completion"
    assert completion.id.startswith("cmpl-")
    assert completion.model == MODEL_NAME
    assert [choice.index for choice in completion.choices] == list(range(count * n))
    assert {choice.finish_reason for choice in completion.choices} == {"length"}
    assert all(choice.text for choice in completion.choices)
    assert completion.usage is not None
    assert completion.usage.completion_tokens == 4 * count * n
    assert completion.usage.prompt_tokens_details is not None


@pytest.mark.parametrize(("prompt", "count"), PROMPTS)
async def test_a_stream_has_every_choice_with_one_reason_and_usage_last(client, prompt, count):
    stream = await client.completions.create(
        model=MODEL_NAME,
        prompt=prompt,
        n=2,
        max_tokens=5,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    chunks = [chunk async for chunk in stream]
    reasons, texts = defaultdict(list), defaultdict(str)
    for chunk in chunks[:-1]:
        assert chunk.object == "text_completion"
        assert chunk.usage is None
        [choice] = chunk.choices
        texts[choice.index] += choice.text
        if choice.finish_reason is not None:
            reasons[choice.index].append(choice.finish_reason)
    assert dict(reasons) == {index: ["length"] for index in range(2 * count)}
    assert all(texts[index] for index in range(2 * count))
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 5 * 2 * count


async def test_a_stream_is_framed_as_every_stream_is(http):
    answer = await http.post(COMPLETIONS, json=body(stream=True, max_tokens=2))
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-cache, no-transform"
    assert answer.headers["x-accel-buffering"] == "no"
    events = answer.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert all(event.startswith("data: {") for event in events[:-2])
    assert all("usage" not in json.loads(event[6:]) for event in events[:-2])


async def test_16_tokens_are_made_where_nothing_is_said(http):
    answer = await http.post(COMPLETIONS, json=body())
    assert answer.json()["usage"]["completion_tokens"] == 16


async def test_usage_is_the_sum_over_all_prompts(http):
    prompts = ["one", "and a longer one", "世界"]
    lengths = [len(await ids_of(http, prompt)) for prompt in prompts]
    answer = await http.post(COMPLETIONS, json=body(prompts, max_tokens=1))
    assert answer.json()["usage"]["prompt_tokens"] == sum(lengths)


async def test_control_tokens_in_a_text_are_control_tokens(http):
    chat = "[gMASK]<sop><|user|>\nHi<|assistant|>\n"
    messages = [{"role": "user", "content": "Hi"}]
    rendered = (await http.post("/v1/tokenize", json={"messages": messages})).json()
    answer = await http.post(COMPLETIONS, json=body(chat, max_tokens=1))
    assert answer.json()["usage"]["prompt_tokens"] == rendered["count"]
    assert await ids_of(http, chat) == rendered["tokens"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        pytest.param({"prompt": None}, "prompt", id="no prompt"),
        pytest.param({"prompt": ""}, "prompt", id="empty"),
        pytest.param({"prompt": ["a", ""]}, "prompt[1]", id="an empty one"),
        pytest.param({"prompt": ["a", 1]}, "prompt[1]", id="mixed"),
        pytest.param({"prompt": [1, -1]}, "prompt[1]", id="negative id"),
        pytest.param({"prompt": [1, 3072]}, "prompt[1]", id="id outside the vocabulary"),
        pytest.param({"prompt": [[1], [2, 9999]]}, "prompt[1][1]", id="id in the second prompt"),
        pytest.param({"prompt": "<|image|>"}, "prompt", id="an image's placeholder"),
        pytest.param({"prompt": ["a"] * 17}, "prompt", id="too many prompts"),
        pytest.param({"prompt": ["a"] * 9, "n": 2}, "n", id="too many choices"),
        pytest.param({"echo": True}, "echo", id="echo"),
        pytest.param({"suffix": "end"}, "suffix", id="suffix"),
        pytest.param({"best_of": 3}, "best_of", id="best_of"),
        pytest.param({"best_of": 1, "n": 2}, "best_of", id="best_of below n"),
        pytest.param({"logprobs": 6}, "logprobs", id="logprobs"),
        pytest.param({"logprobs": True}, "logprobs", id="logprobs of chat"),
        pytest.param({"max_tokens": 0}, "max_tokens", id="max_tokens"),
        pytest.param({"temperature": 3}, "temperature", id="temperature"),
        pytest.param({"stop": [""]}, "stop[0]", id="stop"),
    ],
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_what_cannot_be_is_400_naming_the_parameter(http, fields, param, stream):
    answer = await http.post(COMPLETIONS, json={**body(stream=stream), **fields})
    error = error_of(answer)
    assert (answer.status_code, error["param"]) == (400, param)
    assert error["message"].startswith(f"{param}: ")


async def test_stream_options_without_a_stream_are_refused(http):
    answer = await http.post(COMPLETIONS, json=body(stream_options={"include_usage": True}))
    assert (answer.status_code, error_of(answer)["param"]) == (400, "stream_options")


@pytest.mark.parametrize(
    "prompt", ["word " * 2000, [1] * 600, ["Hi", "word " * 2000]], ids=["text", "ids", "second"]
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_case_17_a_prompt_beyond_the_context_fails_the_whole_request_with_both_numbers(
    http, prompt, stream
):
    answer = await http.post(COMPLETIONS, json=body(prompt, stream=stream))
    error = error_of(answer)
    assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
    assert error["param"] == ("prompt[1]" if prompt[0] == "Hi" else "prompt")
    assert str(CONTEXT_TOKENS) in error["message"]


async def test_parameters_that_repeat_the_default_are_accepted(http):
    fields = {"echo": False, "suffix": "", "best_of": 1, "n": 1, "logprobs": None, "user": "u"}
    answer = await http.post(COMPLETIONS, json=body(max_tokens=1, **fields))
    assert answer.status_code == 200


@pytest.mark.parametrize("count", [0, 5])
async def test_log_probabilities_stand_beside_every_token_streamed_and_whole(client, count):
    async def pieces(stream: bool) -> dict[int, list[tuple[str, float, int]]]:
        made = await client.completions.create(
            model=MODEL_NAME,
            prompt=["a", "b"],
            n=2,
            logprobs=count,
            max_tokens=6,
            stream=stream,
            extra_body={"ignore_eos": True},
        )
        bodies = [body async for body in made] if stream else [made]
        found = defaultdict(list)
        for choice in (choice for body in bodies for choice in body.choices):
            if (shown := choice.logprobs) is not None:
                assert all(len(top) >= max(count, 1) for top in shown.top_logprobs)
                found[choice.index] += zip(
                    shown.tokens, shown.token_logprobs, shown.text_offset, strict=True
                )
        return found

    for found in (await pieces(True), await pieces(False)):
        assert sorted(found) == [0, 1, 2, 3]
        for tokens in found.values():
            assert len(tokens) == 6
            assert all(logprob <= 0 for _, logprob, _ in tokens)
            offsets = [offset for _, _, offset in tokens]
            assert offsets[0] == 0
            assert offsets == sorted(offsets)


async def test_an_unknown_model_is_404(client):
    with pytest.raises(openai.NotFoundError) as raised:
        await client.completions.create(model="gpt", prompt="Hi")
    assert (raised.value.code, raised.value.param) == ("model_not_found", "model")


async def test_a_client_that_leaves_frees_all_places(stack, http):
    wanted = body(["a", "b", "c"], stream=True, max_tokens=400)
    async with http.stream("POST", COMPLETIONS, json=wanted) as answer:
        async for _ in answer.aiter_raw():
            break
        assert stack.behind.app.registry.running_count == 3
    await stack.behind.until(lambda: stack.behind.app.registry.running_count == 0)


async def test_after_all_refusals_the_stack_still_answers(http):
    answer = await http.post(COMPLETIONS, json=body(max_tokens=1))
    assert answer.status_code == 200


@pytest.mark.parametrize("prompt", ["a", ["a", "b", "c"]], ids=["one prompt", "several"])
async def test_a_stream_whose_worker_dies_ends_with_an_error_event(tmp_path, prompt):
    worker = {"max_model_len": CONTEXT_TOKENS, "sim_step_ms": 5}
    async with (
        rest_stack(tmp_path, worker) as stack,
        httpx.AsyncClient(base_url=stack.url, timeout=LIMIT_S) as http,
    ):
        # Seeded: what is not waits for the worker to come back.
        wanted = body(prompt, stream=True, max_tokens=500, seed=1)
        async with http.stream("POST", COMPLETIONS, json=wanted) as answer:
            received, stopping = b"", None
            async for piece in answer.aiter_raw():
                received += piece
                if stopping is None:
                    stopping = asyncio.create_task(stack.behind.worker.stop())
            assert stopping is not None
            await stopping
        assert answer.status_code == 200
        last = received.decode().split("\n\n")[-2]
        assert json.loads(last.removeprefix("data: "))["error"]["type"] == (
            "service_unavailable_error"
        )
        assert b"[DONE]" not in received
        assert stack.behind.app.registry.running_count == 0
