"""Rows of docs/cases.md about clients that come back, with API keys."""

import asyncio
from datetime import UTC, datetime

import httpx
import pytest
from edge_process import error_of
from grpc import aio
from hotline.v1 import generation_pb2, inference_pb2
from rest_stack import RestStack, rest_stack
from sim_stack import LIMIT_S, hello

from services.gateway import key_file
from services.gateway.api_key import key_hash, new_key
from services.gateway.key_document import KeyDocument, StoredKey, StoredLimits
from services.runtime.error_table import Reason
from services.runtime.status import from_rpc_error

CHAT = "/v1/chat/completions"
BODY = {
    "messages": [{"role": "user", "content": "Hi"}],
    "max_tokens": 100,
    "ignore_eos": True,
    "stream": True,
}


@pytest.fixture(scope="module")
async def keys() -> dict[str, tuple[str, StoredKey]]:
    made = {}
    for name in ("acme", "bell"):
        key_id, text = new_key()
        fields = {"id": key_id, "name": name, "owner": name, "hash": key_hash(text)}
        made[name] = (
            text,
            StoredKey(created=datetime.now(UTC), limits=StoredLimits(max_concurrent=1), **fields),
        )
    return made


@pytest.fixture(scope="module")
async def stack(tmp_path_factory, keys):
    folder = tmp_path_factory.mktemp("keys")
    document = KeyDocument(keys=tuple(key for _, key in keys.values()))
    key_file.write(folder / "keys.json", document)
    guards = {"keys_file": folder / "keys.json", "allow_anonymous": False}
    async with rest_stack(folder, {"sim_step_ms": 10}, **guards) as running:
        yield running


@pytest.fixture
async def rest(stack: RestStack, keys):
    clients = {}
    for name, (text, _) in keys.items():
        headers = {"authorization": f"Bearer {text}"}
        clients[name] = httpx.AsyncClient(base_url=stack.url, headers=headers, timeout=LIMIT_S)
    yield clients
    for client in clients.values():
        await client.aclose()
    await stack.behind.until(lambda: stack.behind.app.admission.seat_count == 0)


def metadata(keys, name: str, **more: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {keys[name][0]}"), *more.items())


async def test_case_33_a_foreign_generation_is_never_found_by_any_way(stack, rest, keys):
    call = stack.behind.inference.Generate(
        hello(4000, generation_id="secret"), timeout=LIMIT_S, metadata=metadata(keys, "acme")
    )
    await call.read()
    resume = stack.behind.inference.Resume(
        inference_pb2.ResumeRequest(generation_id="secret"), metadata=metadata(keys, "bell")
    )
    with pytest.raises(aio.AioRpcError) as refused:
        await resume.read()
    assert from_rpc_error(refused.value, "gateway").reason is Reason.GENERATION_NOT_FOUND
    answer = await rest["bell"].get("/v1/generations/secret/events")
    assert error_of(answer)["code"] == "generation_not_found"
    answer = await rest["bell"].post("/v1/generations/secret/cancel")
    assert answer.json()["cancelled"] is False
    answer = await rest["acme"].post("/v1/generations/secret/cancel")
    assert answer.json()["cancelled"] is True
    call.cancel()


async def test_case_35_a_retry_joins_also_where_its_key_has_room_for_one_only(stack, rest, keys):
    headers = {"idempotency-key": "retry"}
    async with rest["acme"].stream("POST", CHAT, json=BODY, headers=headers) as first:
        lines = first.aiter_lines()
        await anext(lines)
        other = await rest["acme"].post(CHAT, json=BODY)
        assert other.status_code == 429
        second = await rest["acme"].post(CHAT, json=BODY, headers=headers)
        assert stack.behind.app.admission.seat_count <= 1
        rest_of = [line async for line in lines]
    assert second.status_code == 200
    assert second.text.endswith("data: [DONE]\n\n")
    assert rest_of[-2] == "data: [DONE]"


async def test_case_35_natively_too_where_the_id_is_said_in_metadata(stack, keys):
    request = hello(100, generation_id="native")
    said = metadata(keys, "acme", **{"x-generation-id": "native"})
    calls = [stack.behind.inference.Generate(request, timeout=LIMIT_S, metadata=said)]
    await calls[0].read()
    for _ in range(2):
        calls.append(stack.behind.inference.Generate(request, timeout=LIMIT_S, metadata=said))
    counts = []
    for call in calls:
        events = [event async for event in _read(call)]
        counts.append(events[-1].finished.usage.completion_tokens)
    assert counts == [100, 100, 100]


async def _read(call):
    while (event := await call.read()) is not aio.EOF:
        yield event


async def test_case_36_after_the_window_it_is_expired_and_not_empty(stack, rest):
    headers = {"x-generation-id": "brief", "x-keep-seconds": "1"}
    short = BODY | {"max_tokens": 3}
    assert (await rest["acme"].post(CHAT, json=short, headers=headers)).status_code == 200
    answer = await rest["acme"].get("/v1/generations/brief/events")
    assert answer.text.endswith("data: [DONE]\n\n")
    await asyncio.sleep(1.3)
    answer = await rest["acme"].get("/v1/generations/brief/events?after=2")
    assert (answer.status_code, error_of(answer)["code"]) == (410, "generation_expired")
    again = await rest["acme"].post(CHAT, json=short, headers=headers)
    assert again.status_code == 200


async def test_case_23_a_kept_generation_frees_its_slot_when_nobody_comes_back(stack, rest):
    long = BODY | {"max_tokens": 5000, "x_keep_seconds": 1}
    async with rest["acme"].stream("POST", CHAT, json=long) as response:
        await anext(response.aiter_lines())
    await asyncio.sleep(0.4)
    assert stack.behind.app.admission.seat_count == 1
    await stack.behind.until(lambda: stack.behind.app.admission.seat_count == 0)
    registry = stack.behind.app.registry
    assert registry.running_count == 0


async def test_a_joined_stream_says_the_same_over_grpc_and_rest(stack, rest, keys):
    call = stack.behind.inference.Generate(
        hello(40, generation_id="both"), timeout=LIMIT_S, metadata=metadata(keys, "acme")
    )
    events: list[generation_pb2.GenerationEvent] = [event async for event in _read(call)]
    answer = await rest["acme"].get("/v1/generations/both/events")
    assert f"id: {events[-1].sequence}\ndata: [DONE]" in answer.text
