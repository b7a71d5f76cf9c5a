"""A refusal by a call's metadata alone."""

from collections.abc import AsyncGenerator
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import Message
from grpc import aio

from services.runtime.errors import ServiceError

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"
_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"


def refusing_unread(error: ServiceError) -> _Handler:
    """A handler that reads no message: 32 MiB of who is refused are neither received nor decoded."""

    async def refuse(requests: Any, context: _Context) -> AsyncGenerator[Message, None]:
        if error:
            raise error
        yield Message()  # makes this an async generator, as the interceptors expect

    handler: _Handler = grpc.stream_stream_rpc_method_handler(refuse, None, _serialised)
    return handler


def _serialised(message: Message) -> bytes:
    return message.SerializeToString()
