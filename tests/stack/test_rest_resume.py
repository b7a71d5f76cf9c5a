"""Generations that are kept, joined, resumed and cancelled over REST, through the edge, with unmodified clients."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from rest_stack import RestStack, rest_stack
from sim_stack import LIMIT_S

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def body(max_tokens: int = 60, **fields: Any) -> dict[str, Any]:
    message = {"role": "user", "content": "Hi"}
    return {
        "messages": [message],
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "stream": True,
        **fields,
    }


@pytest.fixture(scope="module")
async def stack(tmp_path_factory):
    worker = {"sim_step_ms": 5}
    async with rest_stack(tmp_path_factory.mktemp("edge"), worker, max_keep_s=120) as running:
        yield running


@pytest.fixture
async def http(stack: RestStack):
    async with httpx.AsyncClient(base_url=stack.url, timeout=LIMIT_S) as client:
        yield client


@dataclass
class Seen:
    """What came of one stream."""

    chunks: list[dict[str, Any]] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    is_done: bool = False
    headers: httpx.Headers | None = None

    @property
    def text(self) -> str:
        choices = [choice for chunk in self.chunks for choice in chunk["choices"]]
        return "".join(c.get("text", c.get("delta", {}).get("content")) or "" for c in choices)

    @property
    def roles(self) -> list[str]:
        choices = [choice for chunk in self.chunks for choice in chunk["choices"]]
        return [c["delta"]["role"] for c in choices if "role" in c.get("delta", {})]

    @property
    def finish(self) -> list[str]:
        choices = [choice for chunk in self.chunks for choice in chunk["choices"]]
        return [c["finish_reason"] for c in choices if c["finish_reason"]]


@asynccontextmanager
async def opened(http: httpx.AsyncClient, method: str, path: str, **fields: Any):
    async with http.stream(method, path, **fields) as response:
        assert response.status_code == 200, await response.aread()
        yield response, response.aiter_lines()


async def read(lines: AsyncGenerator[str, None], seen: Seen, count: int = 0) -> Seen:
    """So many chunks, or all to the end."""
    async for line in lines:
        if line.startswith("id: "):
            seen.ids.append(int(line[4:]))
        if line == "data: [DONE]":
            seen.is_done = True
        elif line.startswith("data: "):
            seen.chunks.append(json.loads(line[6:]))
            if len(seen.chunks) == count:
                break
    return seen


async def stream(http: httpx.AsyncClient, path: str, count: int = 0, **fields: Any) -> Seen:
    async with opened(http, "POST", path, **fields) as (response, lines):
        return await read(lines, Seen(headers=response.headers), count)


async def events(http: httpx.AsyncClient, name: str, after: int, **fields: Any) -> Seen:
    path = f"/v1/generations/{name}/events?after={after}"
    async with opened(http, "GET", path, **fields) as (response, lines):
        return await read(lines, Seen(headers=response.headers))


def seats(stack: RestStack) -> int:
    return stack.behind.app.admission.seat_count


async def test_a_stream_that_is_kept_tells_numbers_and_is_resumed_after_any_of_them(stack, http):
    cut = await stream(http, CHAT, 9, json=body(x_keep_seconds=20))
    name = cut.headers["x-generation-id"]
    assert cut.chunks[0]["id"] == f"chatcmpl-{name}"
    after = cut.chunks[-1]["sequence"]
    rest = await events(http, name, after)
    whole = await events(http, f"chatcmpl-{name}", 0)
    assert cut.text + rest.text == whole.text
    assert (cut.roles, rest.roles, whole.roles) == (["assistant"], [], ["assistant"])
    assert rest.finish == whole.finish == ["length"]
    assert rest.is_done
    assert whole.is_done
    assert rest.ids == sorted(rest.ids)
    assert rest.ids[0] > after
    assert {chunk["id"] for chunk in (*rest.chunks, *whole.chunks)} == {f"chatcmpl-{name}"}


async def test_an_ordinary_stream_has_no_number_and_ends_with_its_reader(stack, http):
    cut = await stream(http, CHAT, 5, json=body(4000))
    assert not any("sequence" in chunk for chunk in cut.chunks)
    await stack.behind.until(lambda: seats(stack) == 0)
    gone = await http.get(f"/v1/generations/{cut.headers['x-generation-id']}/events")
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "generation_not_found")


async def test_last_event_id_goes_over_after(http):
    headers = {"x-generation-id": "last-event", "x-keep-seconds": "20"}
    whole = await stream(http, CHAT, json=body(), headers=headers)
    middle = whole.chunks[20]["sequence"]
    rest = await events(http, "last-event", 3, headers={"last-event-id": str(middle)})
    assert rest.text == Seen(whole.chunks[21:]).text
    end = await events(http, "last-event", rest.ids[-1])
    assert (end.chunks, end.is_done) == ([], True)


async def test_the_same_post_joins_whether_streamed_or_not(stack, http):
    headers = {"idempotency-key": "retry-1"}
    request = body(100, stream=False)
    answers = await asyncio.gather(
        *(http.post(CHAT, json=request, headers=headers) for _ in range(3))
    )
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["choices"][0]["message"]["content"] for answer in answers}) == 1
    assert {answer.json()["id"] for answer in answers} == {"chatcmpl-retry-1"}
    assert {answer.json()["created"] for answer in answers} == {answers[0].json()["created"]}
    again = await http.post(CHAT, json=request, headers=headers)
    assert again.json() == answers[0].json()


async def test_another_body_under_the_same_key_is_409(http):
    headers = {"idempotency-key": "one-body"}
    assert (await http.post(CHAT, json=body(3), headers=headers)).status_code == 200
    other = await http.post(CHAT, json=body(4), headers=headers)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "generation_conflict")


async def test_a_text_completion_is_resumed_as_text_completion(http):
    request = {"prompt": "Hi", "max_tokens": 40, "ignore_eos": True, "stream": True, "logprobs": 1}
    headers = {"x-generation-id": "prose", "x-keep-seconds": "20"}
    options = {"stream_options": {"include_usage": True}}
    cut = await stream(http, COMPLETIONS, 7, json=request | options, headers=headers)
    rest = await events(http, "prose", cut.chunks[-1]["sequence"])
    whole = await events(http, "cmpl-prose", 0)
    assert cut.text + rest.text == whole.text
    assert {chunk["object"] for chunk in rest.chunks} == {"text_completion"}
    assert rest.chunks[-1]["usage"]["completion_tokens"] == 40

    def offsets(seen: Seen) -> list[int]:
        choices = [choice for chunk in seen.chunks for choice in chunk["choices"]]
        return [o for c in choices if c["logprobs"] for o in c["logprobs"]["text_offset"]]

    assert offsets(cut) + offsets(rest) == offsets(whole)


async def test_cancel_ends_a_kept_generation(stack, http):
    cut = await stream(http, CHAT, 3, json=body(4000, x_keep_seconds=60))
    name = cut.headers["x-generation-id"]
    assert seats(stack) == 1
    answer = await http.post(f"/v1/generations/chatcmpl-{name}/cancel")
    assert answer.json() == {"id": name, "object": "generation", "cancelled": True}
    await stack.behind.until(lambda: seats(stack) == 0)
    again = await http.post(f"/v1/generations/{name}/cancel")
    assert again.json()["cancelled"] is False


@pytest.mark.parametrize(
    ("headers", "fields", "param"),
    [
        pytest.param({"x-keep-seconds": "0"}, {}, "x-keep-seconds", id="too few seconds"),
        pytest.param({"x-keep-seconds": "121"}, {}, "x-keep-seconds", id="beyond the gateway's"),
        pytest.param({"x-keep-seconds": "1.5"}, {}, "x-keep-seconds", id="no whole number"),
        pytest.param({}, {"x_keep_seconds": 121}, "x_keep_seconds", id="in the body"),
        pytest.param({}, {"x_keep_seconds": True}, "x_keep_seconds", id="of the wrong type"),
        pytest.param(
            {"x-keep-seconds": "5"}, {"x_keep_seconds": 6}, "x-keep-seconds", id="two of them"
        ),
        pytest.param({"x-generation-id": "a b"}, {}, "x-generation-id", id="no id"),
        pytest.param({"idempotency-key": "k" * 129}, {}, "idempotency-key", id="too long"),
        pytest.param(
            {"x-generation-id": "a", "idempotency-key": "b"}, {}, "idempotency-key", id="two ids"
        ),
    ],
)
async def test_what_cannot_be_is_400_and_named(http, headers, fields, param):
    answer = await http.post(CHAT, json=body(3, **fields), headers=headers)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/generations/never/events?after=0", 404, "generation_not_found"),
        ("/v1/generations/done/events?after=10000", 400, "invalid_value"),
        ("/v1/generations/gone/events", 410, "generation_expired"),
    ],
)
async def test_where_nothing_can_be_resumed_it_is_said(stack, http, path, status, code):
    for name in ("done", "gone"):
        headers = {"x-generation-id": name}
        assert (await http.post(CHAT, json=body(3), headers=headers)).status_code == 200
    stack.behind.app.registry.kept.expire(("anonymous", "gone"))
    answer = await http.get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


async def test_what_began_natively_is_read_as_chat_chunks(stack, http):
    from sim_stack import hello

    request = hello(30, generation_id="native")
    call = stack.behind.inference.Generate(request, timeout=LIMIT_S)
    text = "".join([event.text.text async for event in call])
    seen = await events(http, "native", 0)
    assert seen.text == text
    assert seen.chunks[0]["object"] == "chat.completion.chunk"
    assert seen.finish == ["length"]


async def test_the_openai_package_reads_kept_and_resumed_chunks(stack):
    async with stack.client() as client:
        chunks = await client.chat.completions.create(
            model="autoglm-phone-9b",
            messages=[{"role": "user", "content": "Hi"}],
            max_tokens=20,
            stream=True,
            extra_body={"ignore_eos": True, "x_keep_seconds": 10},
            extra_headers={"Idempotency-Key": "package"},
        )
        seen = [chunk async for chunk in chunks]
        numbers = [chunk.sequence for chunk in seen if hasattr(chunk, "sequence")]
        assert numbers == sorted(set(numbers))
        assert numbers
