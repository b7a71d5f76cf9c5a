"""One process behind the gateway: a kept-alive channel, and whether it serves, by grpc.health.v1 Watch."""

import asyncio
from collections.abc import Awaitable, Callable

import grpc
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.runtime.channel import open_channel
from services.runtime.logs import get_logger

_log = get_logger()

PROBE_INTERVAL_S, PROBE_TIMEOUT_S = 5.0, 10.0
"""A process that is frozen neither ends its watch nor changes its state; it just does not answer a Check."""

FIRST_DELAY_S, LAST_DELAY_S = 0.1, 2.0
"""Between two attempts to watch: doubled from the first to the last."""


class Upstream:
    """A named process and its health."""

    def __init__(
        self,
        name: str,
        address: str,
        probe_interval_s: float = PROBE_INTERVAL_S,
        probe_timeout_s: float = PROBE_TIMEOUT_S,
    ) -> None:
        self.name, self.address = name, address
        self._probe_interval_s, self._probe_timeout_s = probe_interval_s, probe_timeout_s
        self.channel: aio.Channel = open_channel(address)
        self.serving = False
        self.frozen_listeners: list[Callable[[], None]] = []
        """Called when the process is there but no longer answers: its streams will neither go on nor end by themselves.
        Not when it dies or drains: then its streams tell."""

    async def watch(
        self, on_serving: Callable[[], Awaitable[None]], on_change: Callable[[], Awaitable[None]]
    ) -> None:
        """Follow the process's health until cancelled, through any number of its deaths.

        Args:
            on_serving: awaited before the process counts as serving; an RPC error in it counts as unhealthy.
            on_change: awaited after `serving` changed.
        """
        stub: health_pb2_grpc.HealthAsyncStub = health_pb2_grpc.HealthStub(self.channel)
        delay_s = FIRST_DELAY_S
        while True:
            try:
                reason = await self._follow(stub, on_serving, on_change)
                delay_s = FIRST_DELAY_S
            except aio.AioRpcError as error:
                reason = str(error.code())
                if error.code() is grpc.StatusCode.CANCELLED and self.channel.get_state() is (
                    grpc.ChannelConnectivity.SHUTDOWN
                ):
                    return
            if self.serving:
                _log.warning("upstream lost", upstream=self.name, reason=reason)
            await self._set(False, on_change)
            await asyncio.sleep(delay_s)  # back-off between attempts to connect
            delay_s = min(delay_s * 2, LAST_DELAY_S)

    async def _follow(
        self,
        stub: health_pb2_grpc.HealthStub,
        on_serving: Callable[[], Awaitable[None]],
        on_change: Callable[[], Awaitable[None]],
    ) -> str:
        """Follow one watch to its end, or until the process no longer answers; returns which."""

        async def read() -> str:
            async for response in stub.Watch(health_pb2.HealthCheckRequest()):
                serving = response.status == health_pb2.HealthCheckResponse.SERVING
                if serving and not self.serving:
                    await on_serving()
                await self._set(serving, on_change)
            return "the watch ended"

        async def probe() -> str:
            while True:
                await asyncio.sleep(self._probe_interval_s)
                try:
                    request = health_pb2.HealthCheckRequest()
                    await stub.Check(request, timeout=self._probe_timeout_s)
                except aio.AioRpcError as error:
                    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                        for tell in self.frozen_listeners:
                            tell()
                    return f"no answer to a probe: {error.code()}"

        tasks = [asyncio.create_task(read()), asyncio.create_task(probe())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return await done.pop()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _set(self, serving: bool, on_change: Callable[[], Awaitable[None]]) -> None:
        if serving != self.serving:
            self.serving = serving
            _log.info("upstream", upstream=self.name, serving=serving)
            await on_change()

    async def close(self) -> None:
        """Close the channel; its calls end. Idempotent."""
        await self.channel.close()
