"""Every kind of call gets its own caller before its handler runs; what is not for clients is not there."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime

import grpc
import pytest
from google.api import httpbody_pb2
from grpc import aio
from grpc_channelz.v1 import channelz
from hotline.v1 import (
    generation_pb2,
    inference_pb2,
    inference_pb2_grpc,
    openai_pb2_grpc,
    worker_pb2_grpc,
)

from services.gateway.api_key import key_hash, new_key
from services.gateway.authentication import Authenticator
from services.gateway.authentication_interceptor import AuthenticationInterceptor
from services.gateway.call_caller import caller_of
from services.gateway.key_document import KeyDocument, StoredKey
from services.gateway.key_ring import KeyRing
from services.gateway.rest_answers import RestInterceptor
from services.runtime.channel import create_server, open_channel
from services.runtime.interceptors import ErrorInterceptor

LIMIT_S = 10
INFERENCE = "/hotline.v1.InferenceService/"
CHAT = "/hotline.v1.OpenAIService/CreateChatCompletion"


class Telling(
    inference_pb2_grpc.InferenceServiceServicer,
    openai_pb2_grpc.OpenAIServiceServicer,
    worker_pb2_grpc.WorkerServiceServicer,
):
    """Tells each caller its owner."""

    def __init__(self) -> None:
        self.together = asyncio.Barrier(2)
        self.served = 0

    async def CountTokens(self, request, context):
        self.served += 1
        return inference_pb2.CountTokensResponse(prompt_tokens=len(caller_of(context).owner))

    async def Generate(self, request, context) -> AsyncGenerator[object, None]:
        self.served += 1
        for _ in range(2):
            await self.together.wait()  # both are under way at once
            text = generation_pb2.TextEvent(text=caller_of(context).owner)
            yield generation_pb2.GenerationEvent(text=text)

    async def CreateChatCompletion(self, request, context) -> AsyncGenerator[object, None]:
        self.served += 1
        yield httpbody_pb2.HttpBody(data=caller_of(context).owner.encode())


def key_of(owner: str) -> tuple[str, StoredKey]:
    key_id, text = new_key()
    now = datetime.now(UTC)
    return text, StoredKey(id=key_id, name=owner, owner=owner, hash=key_hash(text), created=now)


class Served:
    """A server with the gateway's interceptors, and services that are not for clients beside those that are."""

    def __init__(self, with_authentication: bool = True) -> None:
        made = {owner: key_of(owner) for owner in ("one", "three")}
        ring = KeyRing(lambda: datetime.now(UTC))
        ring.take(KeyDocument(keys=tuple(key for _, key in made.values())))
        self.keys = {owner: text for owner, (text, _) in made.items()}
        authentication = AuthenticationInterceptor(Authenticator(ring, allow_anonymous=False))
        inner = [RestInterceptor(), authentication] if with_authentication else []
        self.server = create_server([ErrorInterceptor(), *inner])
        self.servicer = Telling()
        inference_pb2_grpc.add_InferenceServiceServicer_to_server(self.servicer, self.server)
        openai_pb2_grpc.add_OpenAIServiceServicer_to_server(self.servicer, self.server)
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(self.servicer, self.server)
        channelz.add_channelz_servicer(self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")

    def metadata(self, owner: str) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.keys.get(owner, owner)}"),)


@pytest.fixture
async def served():
    made = Served()
    await made.server.start()
    async with open_channel(f"127.0.0.1:{made.port}") as channel:
        yield made, channel
    await made.server.stop(0)


async def code_of(call) -> str:
    try:
        async with asyncio.timeout(LIMIT_S):
            if hasattr(call, "__aiter__"):
                async for _ in call:
                    pass
            else:
                await call
    except aio.AioRpcError as error:
        return error.code().name
    return "OK"


async def test_calls_that_run_at_once_have_each_their_own_caller(served):
    made, channel = served
    stub = inference_pb2_grpc.InferenceServiceStub(channel)

    async def told(owner: str) -> list[str]:
        call = stub.Generate(
            inference_pb2.GenerateRequest(), timeout=LIMIT_S, metadata=made.metadata(owner)
        )
        return [event.text.text async for event in call]

    assert await asyncio.gather(told("one"), told("three")) == [["one"] * 2, ["three"] * 2]


async def test_a_unary_call_has_its_caller(served):
    made, channel = served
    stub = inference_pb2_grpc.InferenceServiceStub(channel)
    answer = await stub.CountTokens(
        inference_pb2.CountTokensRequest(), timeout=LIMIT_S, metadata=made.metadata("three")
    )
    assert answer.prompt_tokens == len("three")


async def test_a_rest_call_has_its_caller(served):
    made, channel = served
    stub = openai_pb2_grpc.OpenAIServiceStub(channel)
    call = stub.CreateChatCompletion(
        httpbody_pb2.HttpBody(), timeout=LIMIT_S, metadata=made.metadata("one")
    )
    assert [body.data async for body in call] == [b"one"]


@pytest.mark.parametrize("method", [f"{INFERENCE}CountTokens", f"{INFERENCE}Generate", CHAT])
async def test_without_a_key_no_handler_runs_and_no_message_is_read(served, method):
    made, channel = served
    for sent in ((), made.metadata("EMPTY")):
        call = channel.unary_stream(method)(b"\xff\xff\xff", timeout=LIMIT_S, metadata=sent)
        assert await code_of(call) == "UNAUTHENTICATED"
    # A client that never sends its message is refused all the same: nobody waits for it.
    silent = channel.stream_stream(method)(timeout=LIMIT_S)
    assert await code_of(silent) == "UNAUTHENTICATED"
    assert made.servicer.served == 0


@pytest.mark.parametrize(
    "method",
    ["/grpc.channelz.v1.Channelz/GetServers", "/hotline.v1.WorkerService/GetStatus", "/no.such/X"],
)
async def test_what_is_not_for_clients_does_not_exist_even_with_a_key(served, method):
    made, channel = served
    call = channel.unary_unary(method)(b"", timeout=LIMIT_S, metadata=made.metadata("one"))
    assert await code_of(call) == "UNIMPLEMENTED"


async def test_a_rest_refusal_has_its_body_and_says_how_to_do_better(served):
    _, channel = served
    call = openai_pb2_grpc.OpenAIServiceStub(channel).CreateChatCompletion(
        httpbody_pb2.HttpBody(), timeout=LIMIT_S
    )
    body = await call.read()
    headers = dict(await call.initial_metadata())
    assert (headers["x-http-status"], headers["www-authenticate"]) == ("401", "Bearer")
    assert b'"invalid_api_key"' in body.data
    assert await call.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_where_nobody_said_who_calls_the_call_fails():
    made = Served(with_authentication=False)
    await made.server.start()
    async with open_channel(f"127.0.0.1:{made.port}") as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        call = stub.CountTokens(inference_pb2.CountTokensRequest(), timeout=LIMIT_S)
        assert await code_of(call) == "INTERNAL"
    await made.server.stop(0)
