"""grpc.health.v1 as a peer sees it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest
from grpc import StatusCode, aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.runtime.channel import create_server, open_channel
from services.runtime.health import HealthServicer
from services.runtime.interceptors import ErrorInterceptor

Response = health_pb2.HealthCheckResponse


class Served:
    """A servicer and its client."""

    def __init__(self, servicer: HealthServicer, channel: aio.Channel) -> None:
        self.servicer = servicer
        self._stub: Any = health_pb2_grpc.HealthStub(channel)  # type: ignore[no-untyped-call]

    async def check(self, name: str) -> str:
        response = await self._stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
        return Response.ServingStatus.Name(response.status)

    def watch(self, name: str) -> tuple[Any, AsyncIterator[Any]]:
        call = self._stub.Watch(health_pb2.HealthCheckRequest(service=name), timeout=5)
        return call, aiter(call)


@pytest.fixture
async def served() -> AsyncGenerator[Served, None]:
    servicer = HealthServicer()
    server = create_server([ErrorInterceptor()])
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = open_channel(f"127.0.0.1:{port}")
    yield Served(servicer, channel)
    await channel.close()
    await server.stop(0)


async def status(watch: AsyncIterator[Any]) -> str:
    update = await asyncio.wait_for(anext(watch), 2)
    return Response.ServingStatus.Name(update.status)


async def test_check_tells_the_status(served: Served):
    await served.servicer.set("", serving=True)
    await served.servicer.set("a", serving=False)
    assert [await served.check(name) for name in ("", "a")] == ["SERVING", "NOT_SERVING"]


async def test_a_name_that_is_not_served_is_not_found(served: Served):
    with pytest.raises(aio.AioRpcError) as caught:
        await served.check("nobody")
    assert caught.value.code() is StatusCode.NOT_FOUND


async def test_a_watch_tells_the_status_and_every_change(served: Served):
    _, watch = served.watch("a")
    assert await status(watch) == "SERVICE_UNKNOWN"
    for serving, told in ((False, "NOT_SERVING"), (True, "SERVING")):
        await served.servicer.set("a", serving=serving)
        assert await status(watch) == told


async def test_a_watcher_that_leaves_does_not_silence_the_others(served: Served):
    await served.servicer.set("a", serving=True)
    leaver, first = served.watch("a")
    _, second = served.watch("a")
    assert [await status(first), await status(second)] == ["SERVING", "SERVING"]
    leaver.cancel()
    await asyncio.sleep(0.05)
    await served.servicer.set("a", serving=False)
    assert await status(second) == "NOT_SERVING"


async def test_ended_watches_end_in_good_order(served: Served):
    await served.servicer.set("a", serving=False)
    call, watch = served.watch("a")
    assert await status(watch) == "NOT_SERVING"
    await served.servicer.end_watches()
    assert [update async for update in watch] == []
    assert await call.code() is StatusCode.OK
