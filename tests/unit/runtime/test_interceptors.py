"""Errors on the wire: the right code, reason, metadata and delay; nothing of ours inside."""

import asyncio
from collections.abc import AsyncGenerator

import grpc
import pytest
from grpc import aio
from hotline.v1 import worker_pb2, worker_pb2_grpc

from services.runtime.channel import open_channel
from services.runtime.errors import InvalidArgumentError, OverloadedError, ServiceError
from services.runtime.interceptors import ErrorInterceptor
from services.runtime.lifecycle import Process, Service
from services.runtime.settings import ServiceSettings
from services.runtime.status import from_rpc_error


class Failing(worker_pb2_grpc.WorkerServiceServicer):
    """Each RPC fails in its own way."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def GetStatus(self, request, context):
        raise InvalidArgumentError("sampling.top_p", 0, "above 0 to 1")

    async def Abort(self, request, context):
        raise OverloadedError("full", retry_delay_s=1.5)

    async def PutFeatures(self, request_iterator, context):
        raise ValueError("secret path")

    async def Generate(self, request, context) -> AsyncGenerator[object, None]:
        yield worker_pb2.WorkerGenerateEvent()
        if request.generation_id == "hang":
            try:
                await asyncio.sleep(30)
            finally:
                self.ended.set()
        raise OverloadedError("mid-stream")

    async def GenerateMany(self, request_iterator, context) -> AsyncGenerator[object, None]:
        async for _ in request_iterator:
            yield worker_pb2.GenerateManyResponse()
        raise RuntimeError("secret")


class FailingService(Service):
    def __init__(self) -> None:
        super().__init__()
        self.servicer = Failing()

    def register(self, server: aio.Server) -> list[str]:
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(self.servicer, server)
        return ["hotline.v1.WorkerService"]

    async def warm(self) -> None:
        return

    async def close(self) -> None:
        return


@pytest.fixture
async def failing():
    service = FailingService()
    process = Process(service, ServiceSettings(address="127.0.0.1:0", drain_notice_s=0))
    await process.start()
    async with open_channel(f"127.0.0.1:{process.port}") as channel:
        yield worker_pb2_grpc.WorkerServiceStub(channel), service.servicer
    await process.stop()


async def failure(awaitable) -> aio.AioRpcError:
    with pytest.raises(aio.AioRpcError) as raised:
        await asyncio.wait_for(awaitable, 10)
    return raised.value


async def test_a_service_error_keeps_its_reason_message_and_metadata(failing):
    error = await failure(failing[0].GetStatus(worker_pb2.GetStatusRequest()))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    back = from_rpc_error(error, "peer")
    assert isinstance(back, InvalidArgumentError)
    assert back.metadata == {"field": "sampling.top_p", "value": "0", "limit": "above 0 to 1"}
    assert back.message == error.details()


async def test_a_retry_delay_survives_the_wire(failing):
    back = from_rpc_error(await failure(failing[0].Abort(worker_pb2.AbortRequest())), "peer")
    assert isinstance(back, OverloadedError)
    assert back.retry_delay_s == 1.5


async def test_an_unexpected_exception_shows_nothing_of_itself(failing):
    error = await failure(failing[0].PutFeatures(iter(())))
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in error.details()
    assert "ValueError" not in error.details()


async def test_a_stream_that_fails_midway_ends_with_the_status(failing):
    call = failing[0].Generate(worker_pb2.WorkerGenerateRequest())
    await call.read()
    error = await failure(call.read())
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_bidi_stream_is_covered_too(failing):
    call = failing[0].GenerateMany(iter([worker_pb2.GenerateManyRequest()]))
    await call.read()
    error = await failure(call.read())
    assert (error.code(), "secret" in error.details()) == (grpc.StatusCode.INTERNAL, False)


async def test_a_client_that_goes_ends_the_handler(failing):
    stub, servicer = failing
    call = stub.Generate(worker_pb2.WorkerGenerateRequest(generation_id="hang"))
    await call.read()
    call.cancel()
    await asyncio.wait_for(servicer.ended.wait(), 5)


async def test_an_unknown_method_is_unimplemented(failing):
    interceptor = ErrorInterceptor()

    async def nothing(_details: object) -> None:
        return None

    class Details:
        method = "/hotline.v1.WorkerService/Nothing"
        invocation_metadata = ()

    assert await interceptor.intercept_service(nothing, Details()) is None


async def test_a_peer_that_is_not_there_is_unavailable_with_advice():
    async with open_channel("127.0.0.1:1") as channel:
        stub = worker_pb2_grpc.WorkerServiceStub(channel)
        error = await failure(stub.GetStatus(worker_pb2.GetStatusRequest(), timeout=5))
    back: ServiceError = from_rpc_error(error, "worker-0")
    assert back.row.http_status == 503
    assert back.retry_delay_s
    assert "127.0.0.1" not in back.message
