"""Who serves: grpc.health Watch on each process, and the whole chain through the edge."""

import asyncio
import http.client
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.runtime.channel import open_channel

_RETRY_S = 0.25
"""Between two watches of a peer that is not there or does not serve yet."""
_PROBE_TIMEOUT_S = 10.0


async def watch(address: str) -> AsyncGenerator[bool | None, None]:
    """Whether a process serves: True or False as it says so, None where it does not answer. Never ends by itself.

    Args:
        address: `host:port` or `unix:/path`.
    """
    last: bool | None = None
    async with open_channel(address) as channel:
        while True:
            call = health_pb2_grpc.HealthStub(channel).Watch(
                health_pb2.HealthCheckRequest(), wait_for_ready=True
            )
            try:
                async for answer in call:
                    now = answer.status == health_pb2.HealthCheckResponse.SERVING
                    if now is not last:
                        last = now
                        yield now
            except aio.AioRpcError:
                pass  # it went away, or the edge has nobody behind it
            if last is not None:
                last = None
                yield None
            await asyncio.sleep(_RETRY_S)


async def until_chain_answers(address: str) -> None:
    """Wait until the gateway serves through the edge, by gRPC and then by REST; no limit of its own.

    Raises:
        ConnectionError: gRPC is served there, but REST is not.
    """
    async with aclosing(watch(address)) as states:
        async for serving in states:
            if serving:
                break
    try:
        status, body = await asyncio.to_thread(ask_edge, address, "/health/ready")
    except http.client.HTTPException as error:
        raise ConnectionError(f"GET /health/ready is not answered in HTTP: {error!r}") from None
    if status != http.client.OK:
        raise ConnectionError(f"GET /health/ready answers {status}: {body}")


def ask_edge(address: str, path: str, timeout_s: float = _PROBE_TIMEOUT_S) -> tuple[int, str]:
    """HTTP status and error message of a GET at the edge. Raises OSError and http.client.HTTPException."""
    connection = http.client.HTTPConnection(address, timeout=timeout_s)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read(4096)
    finally:
        connection.close()
    try:
        return response.status, str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return response.status, ""
