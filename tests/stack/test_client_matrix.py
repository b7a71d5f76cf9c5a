"""A phone agent's conversation through Envoy, as clients send it, and each rule of what it must be answered."""

import asyncio
import base64
import io
import json
import os

import httpx
import openai
import pytest
from edge_process import error_of
from event_stream import check_headers, events_of, read_chat
from langchain_openai import ChatOpenAI
from phone_agent import EXTRA, HEADERS, MODEL, PROBE, SYSTEM, check, step
from PIL import Image
from rest_stack import MODEL_NAME, RestStack, rest_stack
from sim_stack import LIMIT_S

CHAT = "/v1/chat/completions"
STEPS = 5
ANSWERS = [f'do(action="Tap", element=[{n}00,{n}50])' for n in range(STEPS)]
SHORT = {"max_tokens": 12, "ignore_eos": True}
"""The simulator's answers mean nothing; they need not be long."""


def screen(number: int, size: tuple[int, int] = (1080, 2400)) -> str:
    """A screenshot of about 1.2 MB as a data URL: noise does not compress."""
    image = Image.new("RGB", size, (number * 40, 200, 90))
    noise = Image.frombytes("RGB", (440, 680), os.urandom(440 * 680 * 3))
    image.paste(noise, (300, 300))
    data = io.BytesIO()
    image.save(data, "PNG", compress_level=1)
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()


@pytest.fixture(scope="module")
def screens() -> list[str]:
    made = [screen(number) for number in range(STEPS)]
    assert all(1_150_000 < len(url) < 1_400_000 for url in made)
    return made


@pytest.fixture(scope="module")
async def stack(tmp_path_factory):
    worker = {"max_model_len": 16_384, "sim_output_tokens": 12}
    async with rest_stack(tmp_path_factory.mktemp("edge"), worker) as running:
        yield running


@pytest.fixture
async def http(stack: RestStack):
    async with httpx.AsyncClient(base_url=stack.url, timeout=LIMIT_S, headers=HEADERS) as client:
        yield client


def test_the_shapes_are_those_that_were_seen(screens):
    assert 3_300 < len(SYSTEM) < 3_500
    last = step(STEPS, screens, ANSWERS)
    assert [m["role"] for m in last["messages"]] == ["system", *["user", "assistant"] * 4, "user"]
    assert [len(m["content"]) for m in last["messages"][1::2]] == [1, 1, 1, 1, 2]
    assert last["messages"][2]["content"].startswith("<think><think>")
    assert "stream_options" not in last


async def test_the_check_is_answered_whole_with_its_three_counts(http, screens):
    answer = await http.post(CHAT, json=check(screens[0]))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    [choice] = body["choices"]
    assert isinstance(choice["message"]["content"], str)
    usage = body["usage"]
    assert usage["prompt_tokens"] > 1_500  # a long text and a large image
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= 0
    assert body["model"] == MODEL_NAME


async def test_the_probe_is_200_with_one_choice_that_was_cut(http):
    answer = await http.post(CHAT, json={**PROBE, "ignore_eos": True})
    assert answer.status_code == 200
    [choice] = answer.json()["choices"]
    assert choice["finish_reason"] == "length"
    assert answer.json()["usage"]["completion_tokens"] == 5


async def test_the_model_list_has_the_name_that_is_asked_for(http):
    answer = await http.get("/v1/models")
    body = answer.json()
    assert body["object"] == "list"
    assert MODEL in [entry["id"] for entry in body["data"]]
    for entry in body["data"]:
        assert entry["object"] == "model"
        assert type(entry["created"]) is int
        assert isinstance(entry["owned_by"], str)


@pytest.mark.parametrize("number", range(1, STEPS + 1))
async def test_case_2_each_step_with_doubled_tags_streams_by_the_rules(http, screens, number):
    answer = await http.post(CHAT, json=step(number, screens, ANSWERS, **SHORT))
    check_headers(answer)
    streamed = read_chat(answer.text)
    assert sorted(streamed.choices) == [0]
    assert streamed.choices[0].reason == "length"
    assert streamed.choices[0].content or streamed.choices[0].reasoning
    assert streamed.chunks[0]["model"] == MODEL_NAME


async def test_case_2_earlier_turns_are_found_in_the_cache(http, screens):
    """The prompts of two steps agree up to the last user turn."""
    usage = {"stream_options": {"include_usage": True}}
    answers = []
    for number in (4, 5):
        body = step(number, screens, [f"cached {n}" for n in range(STEPS)], **SHORT, **usage)
        answers.append(read_chat((await http.post(CHAT, json=body)).text, with_usage=True))
    cached = answers[1].usage["prompt_tokens_details"]["cached_tokens"]
    assert cached > len(SYSTEM) // 4
    assert cached < answers[1].usage["prompt_tokens"]


async def test_doubled_tags_come_to_the_model_as_they_stand(http):
    turn = "<think><think>T</think>\n<answer></think><answer>do(action='Back')</answer>"
    messages = [{"role": "assistant", "content": turn}, {"role": "user", "content": "go on"}]
    asked = await http.post("/v1/tokenize", json={"model": MODEL, "messages": messages})
    shown = await http.post("/v1/detokenize", json={"tokens": asked.json()["tokens"]})
    assert turn in shown.json()["prompt"]


async def test_the_first_chunk_brings_text_and_the_rest_no_empty_ones(http):
    answer = await http.post(CHAT, json={**PROBE, **SHORT, "stream": True})
    chunks = read_chat(answer.text).chunks
    assert chunks[0]["choices"][0]["delta"]["content"]
    contents = [chunk["choices"][0]["delta"].get("content") for chunk in chunks[:-1]]
    assert all(contents)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        pytest.param({}, False, id="not asked for"),
        pytest.param({"stream_options": {"include_usage": False}}, False, id="not wanted"),
        pytest.param({"stream_options": None}, False, id="null"),
        pytest.param({"stream_options": {"include_usage": True}}, True, id="wanted"),
    ],
)
async def test_usage_comes_once_at_the_end_and_only_where_it_is_wanted(http, fields, told):
    answer = await http.post(CHAT, json={**PROBE, **SHORT, "stream": True, **fields})
    events = events_of(answer.text)
    with_usage = [event for event in events if "usage" in event]
    assert with_usage == (events[-1:] if told else [])
    if told:
        assert events[-1]["choices"] == []
        assert events[-1]["usage"]["completion_tokens"] == 12


@pytest.mark.parametrize("accept", ["gzip", "gzip, deflate", "gzip, deflate, br, zstd", "*"])
@pytest.mark.parametrize("stream", [False, True])
async def test_nothing_is_compressed_whatever_a_client_accepts(http, accept, stream):
    body = {**PROBE, **SHORT, "stream": stream}
    answer = await http.post(CHAT, json=body, headers={"accept-encoding": accept})
    assert "content-encoding" not in answer.headers
    assert answer.text.startswith("data: " if stream else "{")


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream", "*/*", "text/html"])
async def test_a_stream_is_a_stream_whatever_is_accepted(http, accept):
    answer = await http.post(
        CHAT, json={**PROBE, **SHORT, "stream": True}, headers={"accept": accept}
    )
    check_headers(answer)
    read_chat(answer.text)


async def test_chunks_come_one_by_one(http):
    body = {**PROBE, "max_tokens": 200, "ignore_eos": True, "stream": True}
    async with http.stream("POST", CHAT, json=body) as answer:
        pieces = [piece async for piece in answer.aiter_raw()]
    assert len(pieces) > 20


@pytest.mark.parametrize("where", ["top", "template", "nested"])
async def test_switches_of_thinking_are_read_wherever_clients_put_them(http, where):
    switches = {"enable_thinking": False, "return_reasoning": True}
    placed = {
        "top": switches,
        "template": {"chat_template_kwargs": switches},
        "nested": {"extra_body": switches},
    }[where]
    plain = await http.post("/v1/tokenize", json={**PROBE})
    switched = await http.post("/v1/tokenize", json={**PROBE, **placed})
    assert switched.json()["count"] > plain.json()["count"]


async def test_a_length_stop_reads_the_same_whole_and_streamed(http):
    whole = (await http.post(CHAT, json={**PROBE, "seed": 1, **SHORT})).json()
    told = read_chat((await http.post(CHAT, json={**PROBE, **SHORT, "stream": True})).text)
    assert whole["choices"][0]["finish_reason"] == told.choices[0].reason == "length"
    assert whole["choices"][0]["message"]["role"] == "assistant"
    assert whole["choices"][0]["message"]["content"] is not None


async def test_an_error_on_a_stream_is_never_200(http):
    """openai-python takes a JSON error body with 200 for an empty stream."""
    answer = await http.post(CHAT, json={**PROBE, "stream": True, "temperature": -1})
    assert answer.status_code == 400
    assert error_of(answer)["param"] == "temperature"


async def test_langchain_as_phone_agents_set_it_up_streams_and_sums_usage_once(stack, screens):
    llm = ChatOpenAI(
        model=MODEL,
        temperature=0.5,
        base_url=f"{stack.url}/v1",
        api_key="EMPTY",
        extra_body=EXTRA | {"ignore_eos": True},
        streaming=True,
        max_tokens=12,
        stream_usage=True,
    )
    messages = step(2, screens, ANSWERS)["messages"]
    whole = None
    async for chunk in llm.astream(messages):
        whole = chunk if whole is None else whole + chunk
    assert whole.usage_metadata["output_tokens"] == 12
    assert whole.response_metadata["finish_reason"] == "length"


async def test_twenty_agents_at_once_each_get_their_own_answer(stack, screens):
    small = [screen(number, (540, 1200)) for number in range(2)]
    async with openai.AsyncOpenAI(
        base_url=f"{stack.url}/v1", api_key="EMPTY", max_retries=0, timeout=LIMIT_S
    ) as client:

        async def ask(number: int) -> int:
            body = dict(step(1 + number % 2, small, [f"answer {number}"]))
            body |= {"max_tokens": 3 + number, "stream_options": {"include_usage": True}}
            for name in EXTRA:
                del body[name]
            extra = {"ignore_eos": True}
            stream = await client.chat.completions.create(**body, extra_body=extra)
            chunks = [chunk async for chunk in stream]
            return chunks[-1].usage.completion_tokens

        counts = await asyncio.gather(*map(ask, range(20)))
    assert counts == [3 + number for number in range(20)]


async def test_a_content_type_with_a_charset_is_json_and_another_one_is_refused_by_its_name(http):
    content = json.dumps(PROBE)
    for content_type, status in (
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("text/plain", 400),
    ):
        headers = {"content-type": content_type}
        answer = await http.post(CHAT, content=content, headers=headers)
        assert answer.status_code == status, content_type
    assert "text/plain" in error_of(answer)["message"]
