"""grpc.health.v1 for one process.

In place of grpcio-health-checking's servicer, which has two faults: when one of several watchers of a name leaves, the
others hear nothing any more; and watches never end, so that a server with a watcher always stops only after its grace.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, TypeAlias

import grpc
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"
_Response: TypeAlias = health_pb2.HealthCheckResponse


class HealthServicer(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """Statuses by service name; the empty name is the whole process."""

    def __init__(self) -> None:
        self._statuses: dict[str, int] = {}
        self._changed = asyncio.Condition()
        self._ended = False

    async def set(self, name: str, serving: bool) -> None:
        """Change a service's status and tell its watchers."""
        async with self._changed:
            self._statuses[name] = _Response.SERVING if serving else _Response.NOT_SERVING
            self._changed.notify_all()

    async def end_watches(self) -> None:
        """End all watches, now and from now on, after the status that they have last."""
        async with self._changed:
            self._ended = True
            self._changed.notify_all()

    async def Check(self, request: health_pb2.HealthCheckRequest, context: _Context) -> _Response:
        """The status; NOT_FOUND, as the protocol wants it, for a name that is not served."""
        if request.service not in self._statuses:
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return _Response(status=self._statuses[request.service])

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: _Context
    ) -> AsyncGenerator[_Response, None]:
        """The status and each change; a slow reader may miss what did not last."""
        told: int | None = None
        while True:
            async with self._changed:
                while (status := self._status(request.service)) == told and not self._ended:
                    await self._changed.wait()
            if status != told:
                told = status
                yield _Response(status=told)
            elif self._ended:
                return

    def _status(self, name: str) -> int:
        return self._statuses.get(name, int(_Response.SERVICE_UNKNOWN))
