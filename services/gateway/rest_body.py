"""The body of a REST call: bounded, JSON, typed."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from google.api import httpbody_pb2

from services.gateway.json_body import parse
from services.gateway.settings import GatewaySettings
from services.runtime.errors import InvalidArgumentError, RequestTooLargeError

_Body = TypeVar("_Body")
_Read = TypeVar("_Read")


class BodyReader:
    """Reads bodies within the gateway's limits."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._limit_bytes = settings.max_body_bytes
        self._off_loop_bytes = settings.parse_off_loop_bytes

    async def read(self, request: httpbody_pb2.HttpBody, kind: type[_Body]) -> _Body:
        """The body as a typed struct. Raises RequestTooLargeError, or InvalidArgumentError naming the field."""
        size = len(request.data)
        if size > self._limit_bytes:
            raise RequestTooLargeError("body", size, self._limit_bytes)
        # Also a guard: a foreign web page may POST anything but JSON here without asking first.
        if request.content_type.partition(";")[0].strip().lower() != "application/json":
            raise InvalidArgumentError("content-type", request.content_type, "application/json")
        return await self.work(size, partial(parse, request.data, kind))

    async def work(self, size_bytes: int, read: Callable[[], _Read]) -> _Read:
        """Do what takes time in proportion to a body: in a thread, where the body is large."""
        return await asyncio.to_thread(read) if size_bytes > self._off_loop_bytes else read()
