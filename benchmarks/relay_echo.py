"""What the relay is compared with: a bare grpc.aio process that passes server streams on, and the source of them.

    python benchmarks/relay_echo.py source ADDRESS
    python benchmarks/relay_echo.py relay ADDRESS SOURCE_ADDRESS

The source sends a request's number of messages, each the size of one token's event, at the request's pace. The relay
reads each and writes it: no message is looked into. Nothing in Python on grpc.aio can relay for less.
"""

import asyncio
import struct
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import uvloop
from grpc import aio

from services.runtime.channel import create_server, open_channel
from services.runtime.parent import die_with_parent

METHOD = "/bench.Echo/Stream"
MESSAGE = b"\x08\x80\x80\x01\x2a\x08\x0a\x06 token"
"""A GenerationEvent with a sequence number and one short text."""
_REQUEST = struct.Struct("<Id")


def echo_request(count: int, interval_s: float) -> bytes:
    """So many messages, so far apart."""
    return _REQUEST.pack(count, interval_s)


async def source(request: bytes, context: Any) -> AsyncIterator[bytes]:
    """Messages at a pace; one that is late is sent at once."""
    count, interval_s = _REQUEST.unpack(request)
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    for index in range(count):
        wait_s = begin_s + index * interval_s - loop.time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        yield MESSAGE


class Relay:
    """Passes on what another process streams."""

    def __init__(self, address: str) -> None:
        self.channel = open_channel(address)
        self._call = self.channel.unary_stream(METHOD)

    async def stream(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        """Message by message."""
        call: Any = self._call(request)
        while (message := await call.read()) is not aio.EOF:
            yield message


async def main(role: str, address: str, *rest: str) -> None:
    """Serve until killed, without the interceptor of the project's services."""
    die_with_parent()
    behaviour = source
    if role == "relay":
        relay = Relay(*rest)
        await relay.channel.channel_ready()
        behaviour = relay.stream
    handler = grpc.unary_stream_rpc_method_handler(behaviour)
    server = create_server([])
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("bench.Echo", {"Stream": handler}),)
    )
    server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
