"""Health as the gateway sees it: through warm-up, sudden death and return."""

import asyncio

from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from services.gateway.upstream import Upstream

LIMIT_S = 20.0
STATUS = health_pb2.HealthCheckResponse


class Peer:
    """A bare server whose health can be set, and which can die without a word."""

    def __init__(self) -> None:
        self.health = health.aio.HealthServicer()

    async def start(self, port: int = 0) -> int:
        self._server = aio.server(options=[("grpc.so_reuseport", 0)])
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self._server)
        bound = self._server.add_insecure_port(f"127.0.0.1:{port}")
        await self._server.start()
        return bound

    async def set(self, status: int) -> None:
        await self.health.set("", status)

    async def die(self) -> None:
        await self._server.stop(0)


async def until(condition) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.01)


async def nothing() -> None:
    return


async def test_serving_follows_the_peer_through_death_and_return():
    peer = Peer()
    port = await peer.start()
    await peer.set(STATUS.NOT_SERVING)
    upstream = Upstream("worker-0", f"127.0.0.1:{port}")
    changes: list[bool] = []

    async def changed() -> None:
        changes.append(upstream.serving)

    watching = asyncio.create_task(upstream.watch(nothing, changed))
    await asyncio.sleep(0.1)
    assert not upstream.serving
    await peer.set(STATUS.SERVING)
    await until(lambda: upstream.serving)
    await peer.die()
    await until(lambda: not upstream.serving)
    back = Peer()
    await back.set(STATUS.SERVING)
    await back.start(port)
    await until(lambda: upstream.serving)
    assert changes == [True, False, True]
    watching.cancel()
    await asyncio.wait((watching,))
    await upstream.close()
    await back.die()


async def test_a_peer_counts_only_after_it_told_what_it_serves():
    peer = Peer()
    await peer.set(STATUS.SERVING)
    port = await peer.start()
    upstream = Upstream("worker-0", f"127.0.0.1:{port}")
    told = asyncio.Event()
    watching = asyncio.create_task(upstream.watch(told.wait, nothing))
    await asyncio.sleep(0.2)
    assert not upstream.serving
    told.set()
    await until(lambda: upstream.serving)
    watching.cancel()
    await asyncio.wait((watching,))
    await upstream.close()
    await peer.die()
