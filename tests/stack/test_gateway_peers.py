"""Two gateways that share a store: a generation is joined, resumed and cancelled through either."""

import json
import secrets
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from google.api import httpbody_pb2
from grpc import aio
from hotline.v1 import inference_pb2, openai_pb2, openai_pb2_grpc
from sim_stack import (
    LIMIT_S,
    SimStack,
    hello,
    sim_stack,
    started_tokenizer,
    started_worker,
    text_of,
)

from services.gateway.caller import ANONYMOUS
from services.gateway.peers import RELAYED_KEY, _key
from services.runtime.status import from_rpc_error


@dataclass
class Pair:
    """Two gateways before the same processes."""

    one: SimStack
    other: SimStack


@pytest.fixture(scope="module")
async def pair(tmp_path_factory) -> AsyncGenerator[Pair, None]:
    folder: Path = tmp_path_factory.mktemp("peers")
    sessions = {"store": "sqlite", "sqlite_path": folder / "sessions.db"}
    peers = {name: f"unix:{folder}/{name}.sock" for name in ("one", "other")}
    worker = await started_worker(sim_profile="rtx4090x2")
    tokenizer = await started_tokenizer(worker.port)
    async with AsyncExitStack() as exits:
        stacks = [
            await exits.enter_async_context(
                sim_stack(
                    tokenizer, worker, name=name, address=address, peers=peers, sessions=sessions
                )
            )
            for name, address in peers.items()
        ]
        yield Pair(*stacks)
    await tokenizer.stop()
    await worker.stop()


async def all_of(call) -> list:
    return [event async for event in call]


async def test_the_same_request_at_another_gateway_joins_what_runs(pair):
    name = secrets.token_hex(8)
    first = aiter(pair.one.inference.Generate(hello(60, generation_id=name), timeout=LIMIT_S))
    begun = [await anext(first) for _ in range(3)]
    joined = await all_of(
        pair.other.inference.Generate(hello(60, generation_id=name), timeout=LIMIT_S)
    )
    whole = begun + [event async for event in first]
    assert text_of(joined) == text_of(whole)
    assert joined[-1].finished.usage == whole[-1].finished.usage
    assert pair.other.app.registry.running_count == 0
    assert pair.other.app.admission.seat_count == 0


async def test_other_content_under_the_same_id_is_a_conflict_there_too(pair):
    name = secrets.token_hex(8)
    await all_of(pair.one.inference.Generate(hello(4, generation_id=name), timeout=LIMIT_S))
    with pytest.raises(aio.AioRpcError) as raised:
        await all_of(pair.other.inference.Generate(hello(5, generation_id=name), timeout=LIMIT_S))
    assert raised.value.code() is grpc.StatusCode.ALREADY_EXISTS


async def test_a_resume_reaches_the_gateway_that_has_it(pair):
    name = secrets.token_hex(8)
    request = hello(80, generation_id=name)
    call = pair.one.inference.Generate(request, timeout=LIMIT_S)
    begun = [await call.read() for _ in range(6)]
    call.cancel()
    resume = inference_pb2.ResumeRequest(generation_id=name, after_sequence=begun[-1].sequence)
    rest = await all_of(pair.other.inference.Resume(resume, timeout=LIMIT_S))
    assert rest[0].HasField("heartbeat")
    again = await all_of(pair.one.inference.Generate(request, timeout=LIMIT_S))
    assert text_of(begun) + text_of(rest) == text_of(again)
    assert rest[-1].finished.usage.completion_tokens == 80


async def into(bodies: list, call) -> None:
    async for part in call:
        bodies.append(part)


async def test_what_waits_in_a_peers_queue_can_be_cancelled_too(pair):
    name = secrets.token_hex(8)
    call = pair.one.inference.Generate(hello(2000, generation_id=name), timeout=LIMIT_S)
    await call.read()
    call.cancel()  # it is kept
    cancel = inference_pb2.CancelRequest(generation_id=name)
    assert (await pair.other.inference.Cancel(cancel, timeout=LIMIT_S)).cancelled
    await pair.one.until(lambda: not pair.one.app.registry.running_count)
    assert not (await pair.other.inference.Cancel(cancel, timeout=LIMIT_S)).cancelled


async def test_an_id_that_nobody_has_is_not_found(pair):
    resume = inference_pb2.ResumeRequest(generation_id=secrets.token_hex(8))
    with pytest.raises(aio.AioRpcError) as raised:
        await all_of(pair.other.inference.Resume(resume, timeout=LIMIT_S))
    assert from_rpc_error(raised.value, "").reason.value == "GENERATION_NOT_FOUND"


def openai(stack) -> "openai_pb2_grpc.OpenAIServiceAsyncStub":
    return openai_pb2_grpc.OpenAIServiceStub(stack.channel)


async def test_rest_calls_of_one_id_and_their_resumes_meet_too(pair):
    name = secrets.token_hex(8)
    body = httpbody_pb2.HttpBody(
        content_type="application/json",
        data=b'{"messages":[{"role":"user","content":"Hi"}],"max_tokens":40,"ignore_eos":true,"stream":true}',
    )
    names = (("x-generation-id", name), ("x-keep-seconds", "30"))
    whole = b"".join(
        [
            part.data
            async for part in openai(pair.one).CreateChatCompletion(
                body, timeout=LIMIT_S, metadata=names
            )
        ]
    )
    joined = b"".join(
        [
            part.data
            async for part in openai(pair.other).CreateChatCompletion(
                body, timeout=LIMIT_S, metadata=names
            )
        ]
    )
    assert joined.endswith(b"data: [DONE]\n\n")
    assert content(joined) == content(whole) != b""
    request = openai_pb2.StreamGenerationEventsRequest(generation_id=name, after=10)
    events = [
        part async for part in openai(pair.other).StreamGenerationEvents(request, timeout=LIMIT_S)
    ]
    assert events[-1].data.endswith(b"data: [DONE]\n\n")
    missing = openai_pb2.StreamGenerationEventsRequest(generation_id=name, after=10_000)
    call = openai(pair.other).StreamGenerationEvents(missing, timeout=LIMIT_S)
    bodies = []
    with pytest.raises(aio.AioRpcError):
        await into(bodies, call)
    assert dict(await call.initial_metadata())["x-http-status"] == "400"
    assert len(bodies) == 1  # one error, not the peer's and ours


def content(stream: bytes) -> bytes:
    text = ""
    for line in stream.splitlines():
        if line.startswith(b"data: {"):
            for choice in json.loads(line[6:])["choices"]:
                text += choice["delta"].get("content") or ""
    return text.encode()


async def test_what_the_peer_no_longer_has_begins_anew_there(pair):
    name = secrets.token_hex(8)
    await pair.other.app.sessions.store.leases.claim(_key(ANONYMOUS, name), "other", 60)
    call = pair.one.inference.Generate(hello(4, generation_id=name), timeout=LIMIT_S)
    assert (await all_of(call))[-1].finished.usage.completion_tokens == 4
    resume = inference_pb2.ResumeRequest(generation_id=name)
    assert (await all_of(pair.one.inference.Resume(resume, timeout=LIMIT_S)))[-1].finished


async def test_what_a_gateway_had_that_died_begins_anew_where_it_is_asked_for(pair, tmp_path):
    name = secrets.token_hex(8)
    leases, peers = pair.one.app.sessions.store.leases, pair.one.app.peers
    peers._channels["dead"] = aio.insecure_channel(f"unix:{tmp_path}/nobody.sock")
    await leases.claim(_key(ANONYMOUS, name), "dead", 60)
    call = pair.one.inference.Generate(hello(4, generation_id=name), timeout=LIMIT_S)
    assert (await all_of(call))[-1].finished.usage.completion_tokens == 4
    assert await leases.holder(_key(ANONYMOUS, name)) == "one"
    await peers._channels.pop("dead").close()


async def test_a_call_that_a_peer_passed_on_goes_no_further(pair):
    name = secrets.token_hex(8)
    await pair.one.app.sessions.store.leases.claim(_key(ANONYMOUS, name), "other", 60)
    call = pair.one.inference.Generate(
        hello(4, generation_id=name), timeout=LIMIT_S, metadata=((RELAYED_KEY, "other"),)
    )
    assert (await all_of(call))[-1].HasField("finished")
    assert pair.one.app.registry.knows(ANONYMOUS, name)
