"""Requests as they come: exactly one where there is to be one, and an answer also for who sends none."""

from collections.abc import AsyncGenerator

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2
from hotline.v1 import worker_pb2, worker_pb2_grpc

from services.runtime.channel import open_channel
from services.runtime.lifecycle import Process, Service
from services.runtime.settings import ServiceSettings
from services.runtime.status import from_rpc_error

WORKER = "/hotline.v1.WorkerService/"


class Echo(worker_pb2_grpc.WorkerServiceServicer):
    """Answers with what came."""

    async def Abort(self, request, context):
        return worker_pb2.AbortResponse(aborted=bool(request.generation_id))

    async def Generate(self, request, context) -> AsyncGenerator[object, None]:
        yield worker_pb2.WorkerGenerateEvent()

    async def PutFeatures(self, request_iterator, context):
        digests = [piece.chunk async for piece in request_iterator]
        return worker_pb2.PutFeaturesResponse(feature_digests=digests)


class EchoService(Service):
    def register(self, server: aio.Server) -> list[str]:
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(Echo(), server)
        return ["hotline.v1.WorkerService"]

    async def warm(self) -> None:
        return

    async def close(self) -> None:
        return


@pytest.fixture
async def channel():
    process = Process(EchoService(), ServiceSettings(address="127.0.0.1:0", drain_notice_s=0))
    await process.start()
    async with open_channel(f"127.0.0.1:{process.port}") as channel:
        yield channel
    await process.stop()


async def sent(channel: aio.Channel, method: str, *messages: bytes) -> list[bytes]:
    """The answers to a call with so many messages, whatever the method expects."""
    call = channel.stream_stream(method)(iter(messages), timeout=5)
    return [answer async for answer in call]


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(WORKER + "Abort", id="one-answer"),
        pytest.param(WORKER + "Generate", id="many-answers"),
        pytest.param("/grpc.health.v1.Health/Check", id="health"),
        pytest.param("/grpc.health.v1.Health/Watch", id="health-stream"),
    ],
)
async def test_who_ends_without_a_message_is_told_at_once(channel, method):
    with pytest.raises(aio.AioRpcError) as raised:
        await sent(channel, method)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT  # not DEADLINE_EXCEEDED
    assert from_rpc_error(raised.value, "peer").field == "message"


async def test_a_method_with_many_requests_may_have_none(channel):
    assert await sent(channel, WORKER + "PutFeatures") == [b""]


async def test_an_empty_message_is_a_message(channel):
    assert await sent(channel, "/grpc.health.v1.Health/Check", b"") == [
        health_pb2.HealthCheckResponse(status="SERVING").SerializeToString()
    ]


async def test_of_two_messages_the_first_counts(channel):
    asked = worker_pb2.AbortRequest(generation_id="g").SerializeToString()
    answer = worker_pb2.AbortResponse(aborted=True).SerializeToString()
    assert await sent(channel, WORKER + "Abort", asked, b"") == [answer]
