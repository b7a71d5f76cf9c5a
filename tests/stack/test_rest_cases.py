"""Rows of docs/cases.md as a REST client meets them at the edge; after each the stack still answers."""

import asyncio
import base64
import io
import json
from collections import Counter
from typing import Any

import httpx
import pytest
from edge_process import error_of
from event_stream import read_chat
from PIL import Image
from rest_stack import RestStack, rest_stack
from sim_stack import LIMIT_S, MODEL

from services.worker.model import read_model

CHAT = "/v1/chat/completions"
VOCABULARY = read_model(MODEL, {}).vocabulary_size
CONTEXT_TOKENS = 512
HI = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "ignore_eos": True}


@pytest.fixture(scope="module")
async def stack(tmp_path_factory):
    worker = {"max_model_len": CONTEXT_TOKENS, "max_images": 10}
    bounds = {"max_running": 4, "max_waiting": 8}
    async with rest_stack(tmp_path_factory.mktemp("edge"), worker, **bounds) as running:
        yield running


@pytest.fixture
async def http(stack: RestStack):
    async with httpx.AsyncClient(base_url=stack.url, timeout=LIMIT_S) as client:
        yield client
        await stack.behind.until(lambda: stack.behind.app.admission.seat_count == 0)
        after = await client.post(CHAT, json=HI)
        assert (after.status_code, after.json()["usage"]["completion_tokens"]) == (200, 3)


def image_url(size: tuple[int, int], colour: tuple[int, int, int] = (9, 9, 9)) -> str:
    data = io.BytesIO()
    Image.new("RGB", size, colour).save(data, "PNG")
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()


def with_images(*urls: str) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"messages": [{"role": "user", "content": [*parts, {"type": "text", "text": "tap"}]}]}


async def refused(http: httpx.AsyncClient, fields: dict[str, Any], param: str) -> str:
    """The message of a 400 that names this parameter, the same streamed and whole."""
    messages = set()
    for stream in (False, True):
        answer = await http.post(CHAT, json={**HI, "stream": stream, **fields})
        assert answer.status_code == 400, answer.text
        error = error_of(answer)
        assert error["param"] == param
        messages.add(error["message"])
    [message] = messages
    return str(message)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/x.png",
        "https://example.com/x.png",
        "http://169.254.169.254/latest/meta-data",
        "http://localhost/x.png",
        "http://[::1]/x.png",
        "file:///etc/passwd",
        "ftp://example.com/x.png",
        "/etc/passwd",
    ],
)
async def test_case_11_a_url_that_would_be_fetched_is_refused_by_its_part(http, url):
    message = await refused(http, with_images(url), "messages[0].content[0]")
    assert "root:" not in message
    assert "data:" in message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        pytest.param({"messages": []}, "messages", id="none"),
        pytest.param({"messages": [{"role": None, "content": "x"}]}, "messages[0].role", id="null"),
        pytest.param(
            {"messages": [{"role": "user", "content": [{"type": "hologram"}]}]},
            "messages[0].content[0].type",
            id="an unknown part",
        ),
        pytest.param(
            {"messages": [{"role": "user", "content": [{"text": "x"}]}]},
            "messages[0].content[0]",
            id="a part without type",
        ),
    ],
)
async def test_case_13_odd_messages_are_refused_at_the_edge_by_their_path(http, fields, param):
    await refused(http, fields, param)


async def test_case_14_an_empty_assistant_turn_is_answered(http):
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}]
    answer = await http.post(CHAT, json={**HI, "messages": [*turns, turns[0]]})
    assert answer.status_code == 200


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize(
    ("value", "shown", "limit"),
    [
        (0, "0", "at least 1"),
        (-1, "-1", "at least 1"),
        (1.5, "1.5", "an integer"),
        (True, "True", "an integer"),
        ("5", "'5'", "an integer"),
        ([], "[]", "an integer"),
    ],
)
async def test_case_15_a_wrong_number_of_tokens_is_refused_by_its_name(
    http, name, value, shown, limit
):
    message = await refused(http, {"max_tokens": None, name: value}, name)
    assert message.startswith(f"{name}: {shown} is not allowed; must be {limit}")


@pytest.mark.parametrize("value", [None, CONTEXT_TOKENS, 1_000_000, 2**31 - 1, 10**30])
async def test_case_15_absent_or_too_many_tokens_mean_the_room_left(http, value):
    answer = await http.post(CHAT, json={**HI, "max_tokens": value})
    usage = answer.json()["usage"]
    assert answer.status_code == 200
    assert usage["total_tokens"] == CONTEXT_TOKENS
    assert answer.json()["choices"][0]["finish_reason"] == "length"


OUT_OF_RANGE = [
    pytest.param({"temperature": -1}, "temperature", "from 0 to 2", id="temperature -1"),
    pytest.param({"temperature": True}, "temperature", "", id="a boolean"),
    pytest.param({"temperature": "0"}, "temperature", "", id="a string"),
    pytest.param({"top_p": 0}, "top_p", "above 0", id="top_p 0"),
    pytest.param({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "20", id="top_logprobs"),
    pytest.param({"top_logprobs": 3}, "top_logprobs", "logprobs", id="without logprobs"),
    pytest.param({"logprobs": 1}, "logprobs", "", id="a number for a boolean"),
    pytest.param({"n": 0}, "n", "1", id="n 0"),
    pytest.param({"n": 10_000}, "n", "16", id="n 10,000"),
    pytest.param({"stop": ["x"] * 10_000}, "stop", "at most", id="10,000 stop strings"),
    pytest.param({"stop": ["x"] * 17}, "stop", "16", id="17 stop strings"),
    pytest.param({"stop": [""]}, "stop[0]", "1", id="an empty stop string"),
    pytest.param({"logit_bias": {str(VOCABULARY): 1}}, "logit_bias", str(VOCABULARY), id="bias"),
    pytest.param({"logit_bias": {"x": 1}}, "logit_bias", "", id="a token that is none"),
    pytest.param({"seed": 2**63}, "seed", "", id="seed"),
    pytest.param({"min_tokens": 9}, "min_tokens", "max_tokens", id="min above max"),
]


@pytest.mark.parametrize(("fields", "param", "limit"), OUT_OF_RANGE)
async def test_case_16_a_parameter_out_of_range_never_reaches_the_engine(
    stack, http, fields, param, limit
):
    asked = {**HI, **fields}
    for stream in (False, True):
        answer = await http.post(CHAT, json={**asked, "stream": stream})
        error = error_of(answer)
        assert answer.status_code == 400
        assert str(error["param"]).partition("[")[0] == param.partition("[")[0]
        assert limit in error["message"]
    assert stack.behind.app.pool.workers[0].running_count == 0


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999"])
async def test_case_16_numbers_that_are_none_are_400(http, value):
    body = json.dumps(HI)[:-1] + f', "temperature": {value}}}'
    headers = {"content-type": "application/json"}
    answer = await http.post(CHAT, content=body, headers=headers)
    assert answer.status_code == 400
    error_of(answer)


async def test_case_16_stream_options_without_stream_are_400(http):
    answer = await http.post(CHAT, json={**HI, "stream_options": {"include_usage": True}})
    assert (answer.status_code, error_of(answer)["param"]) == (400, "stream_options")


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"messages": [{"role": "user", "content": "界 " * 5000}]}, id="text"),
        pytest.param(
            with_images(*(image_url((1080, 2400), (n, n, n)) for n in range(10))), id="ten screens"
        ),
    ],
)
async def test_case_17_a_prompt_beyond_the_context_is_told_both_numbers(http, fields):
    answer = await http.post(CHAT, json={**HI, **fields})
    error = error_of(answer)
    assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
    assert str(CONTEXT_TOKENS) in error["message"]
    asked = await http.post("/v1/tokenize", json=fields)
    assert str(asked.json()["count"]) in error["message"]


@pytest.mark.parametrize(
    "place",
    [
        '"messages": [{"role": "user", "content": "SURROGATE"}]',
        '"messages": [{"role": "user", "content": [{"type": "text", "text": "SURROGATE"}]}]',
        '"messages": [{"role": "user", "content": "Hi"}], "stop": "SURROGATE"',
        '"messages": [{"role": "user", "content": "Hi"}], "user": "SURROGATE"',
        '"messages": [{"role": "user", "content": "Hi"}], "model": "SURROGATE"',
        '"messages": [{"role": "user", "content": "Hi"}], "unknown": {"SURROGATE": 1}',
    ],
)
@pytest.mark.parametrize("surrogate", ["\\ud800", "a\\udfff", "\\udc00\\ud800"])
async def test_case_18_a_lone_surrogate_anywhere_is_400(http, place, surrogate):
    body = "{" + place.replace("SURROGATE", surrogate) + "}"
    answer = await http.post(CHAT, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    error_of(answer)


async def test_case_18_a_pair_of_surrogates_is_a_character(http):
    body = json.dumps({"prompt": "😀"})
    assert "\\ud83d\\ude00" in body
    headers = {"content-type": "application/json"}
    asked = await http.post("/v1/tokenize", content=body, headers=headers)
    shown = await http.post("/v1/detokenize", json={"tokens": asked.json()["tokens"]})
    assert shown.json()["prompt"].endswith("😀")


@pytest.mark.parametrize("stream", [False, True])
async def test_case_24_a_time_limit_in_decode_ends_with_the_text_so_far(tmp_path, stream):
    async with (
        rest_stack(tmp_path, {"sim_step_ms": 20}, generation_timeout_s=0.8) as slow,
        httpx.AsyncClient(base_url=slow.url, timeout=LIMIT_S) as client,
    ):
        answer = await client.post(CHAT, json={**HI, "max_tokens": 4000, "stream": stream})
        assert answer.status_code == 200
        if stream:
            told = read_chat(answer.text).choices[0]
            text, reason = told.content, told.reason
        else:
            [choice] = answer.json()["choices"]
            text, reason = choice["message"]["content"], choice["finish_reason"]
        assert reason == "length"
        assert text
        assert (await client.post(CHAT, json=HI)).status_code == 200


async def test_case_26_more_than_can_wait_are_429_at_once_and_the_others_are_answered(stack, http):
    answers = await asyncio.gather(
        *(http.post(CHAT, json={**HI, "max_tokens": 200}) for _ in range(80))
    )
    counts = Counter(answer.status_code for answer in answers)
    assert set(counts) == {200, 429}
    assert counts[200] >= 12
    for answer in answers:
        if answer.status_code == 429:
            assert error_of(answer)["code"] == "overloaded"
            assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required"},
    ],
)
async def test_case_37_tools_where_the_template_has_none_are_400_that_says_so(http, fields):
    message = await refused(http, fields, "tools")
    assert "tools" in message


@pytest.mark.parametrize("tools", [[], None])
async def test_case_37_no_tools_are_no_tools(http, tools):
    assert (await http.post(CHAT, json={**HI, "tools": tools})).status_code == 200


async def test_case_30_two_hundred_refusals_cost_no_worker_its_health(stack, http):
    asked = [http.post(CHAT, json={**HI, "top_k": VOCABULARY + 1}) for _ in range(8)]
    for _ in range(25):
        answers = await asyncio.gather(*asked)
        assert {answer.status_code for answer in answers} == {400}
        asked = [http.post(CHAT, json={**HI, "top_k": VOCABULARY + 1}) for _ in range(8)]
    for call in asked:
        call.close()
    assert stack.behind.app.pool.ready
