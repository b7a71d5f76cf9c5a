"""What a call's bytes become: its one request, or a stream of them.

Every method is registered with gRPC as one whose requests are a stream. Of a method with one request grpc.aio would wait for
that request for as long as the call lives, also when the client has said that it sends none.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError
from grpc import aio

from services.runtime.errors import InvalidArgumentError

Deserialise: TypeAlias = Callable[[bytes], Any]
Read: TypeAlias = Callable[[bytes], Any]
_Context: TypeAlias = "aio.ServicerContext[Any, Any]"


def request_reader(deserialise: Deserialise | None) -> Read:
    """What makes a request of the bytes that came. It raises InvalidArgumentError."""

    def read(data: bytes) -> Any:
        if deserialise is None:
            return data
        try:
            return deserialise(data)
        except DecodeError:
            raise InvalidArgumentError(
                "message", f"<{len(data)} bytes>", "this method's request, with strings in UTF-8"
            ) from None

    return read


async def only_request(read: Read, context: _Context) -> Any:
    """The request of a method that has one. Raises InvalidArgumentError where the client ends without any."""
    data: Any = await context.read()
    if data is aio.EOF:
        raise InvalidArgumentError("message", "nothing", "one message: this method's request")
    return read(data)


async def each_request(read: Read, stream: AsyncIterator[bytes]) -> AsyncGenerator[Any, None]:
    """The requests of a method that has many."""
    async for data in stream:
        yield read(data)
