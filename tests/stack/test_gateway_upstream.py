"""Health as the gateway sees it: through warm-up, sudden death and return."""

import asyncio
import signal
import sys

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


async def test_a_peer_that_is_frozen_no_longer_counts_and_counts_again_when_it_thaws(tmp_path):
    program = tmp_path / "peer.py"
    program.write_text(FROZEN_PEER)
    peer = await asyncio.create_subprocess_exec(
        sys.executable, str(program), stdout=asyncio.subprocess.PIPE
    )
    assert peer.stdout is not None
    port = int(await asyncio.wait_for(peer.stdout.readline(), LIMIT_S))
    upstream = Upstream("worker-0", f"127.0.0.1:{port}", 0.2, 0.5)
    frozen: list[bool] = []
    upstream.frozen_listeners.append(lambda: frozen.append(True))
    watching = asyncio.create_task(upstream.watch(nothing, nothing))
    try:
        await until(lambda: upstream.serving)
        peer.send_signal(signal.SIGSTOP)
        await until(lambda: not upstream.serving)
        assert frozen == [True]
        peer.send_signal(signal.SIGCONT)
        await until(lambda: upstream.serving)
        peer.kill()
        await until(lambda: not upstream.serving)
        assert frozen == [True], "a death is told by the streams that break"
    finally:
        if peer.returncode is None:
            peer.kill()
        await peer.wait()
        watching.cancel()
        await asyncio.wait((watching,))
        await upstream.close()


FROZEN_PEER = """
import asyncio
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

async def main():
    server, servicer = aio.server(), health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    await servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()

asyncio.run(main())
"""
