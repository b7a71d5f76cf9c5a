"""How a REST answer travels through Envoy's transcoder: HttpBody messages, and the HTTP status beside them.

Before the first byte an error is initial metadata `x-http-status`, one HttpBody with OpenAI's error object, and a
non-OK gRPC status; the edge turns the metadata into the HTTP status. After the first byte it is a server-sent error
event, because an HTTP/1.1 client takes a bare end for success.
"""

import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

import grpc
from google.api import httpbody_pb2
from grpc import aio

from services.gateway.call_headers import answer_headers
from services.gateway.openai_response import encode, error_body, sse
from services.runtime.error_table import Reason
from services.runtime.errors import InternalError, ServiceError
from services.runtime.status import from_rpc_error

PREFIX = "/hotline.v1.OpenAIService/"
JSON, EVENT_STREAM = "application/json", "text/event-stream"
STREAM_METADATA = (
    ("cache-control", "no-cache, no-transform"),
    ("x-accel-buffering", "no"),
)
"""Headers of an event stream: no proxy may buffer or change it."""

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"
_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
_Stream: TypeAlias = Callable[[Any, _Context], AsyncIterator[httpbody_pb2.HttpBody]]


def json_body(data: bytes) -> httpbody_pb2.HttpBody:
    """One whole JSON answer."""
    return httpbody_pb2.HttpBody(content_type=JSON, data=data)


def stream_body(data: bytes) -> httpbody_pb2.HttpBody:
    """A piece of an event stream; the first one's content type becomes the header."""
    return httpbody_pb2.HttpBody(content_type=EVENT_STREAM, data=data)


class RestInterceptor(aio.ServerInterceptor):
    """Gives the errors of OpenAIService their body; they go on to the error interceptor for their status."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler:
        """Wrap the methods of OpenAIService only; each answers with a stream of HttpBody."""
        handler: Any = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith(PREFIX):
            wrapped: _Handler = handler
            return wrapped
        # With a stream of requests: a refusal that reads none of them.
        build = grpc.unary_stream_rpc_method_handler
        if handler.request_streaming:
            build = grpc.stream_stream_rpc_method_handler
        return build(
            _with_error_body(handler.stream_stream or handler.unary_stream),
            handler.request_deserializer,
            handler.response_serializer,
        )


def _with_error_body(behaviour: _Stream) -> _Stream:
    async def call(request: Any, context: _Context) -> AsyncGenerator[httpbody_pb2.HttpBody, None]:
        begun = False
        try:
            bodies: Any = behaviour(request, context)
            async with aclosing(bodies):
                async for body in bodies:
                    if not begun:
                        # Not before: until the first piece an error can still be a status of its own.
                        begun = True
                        headers = _headers(body)
                        if headers:
                            await context.send_initial_metadata(headers)
                    yield body
        # The client must hear of every failure in its own words; the error interceptor logs it and ends the call.
        except Exception as raised:
            error = _service_error(raised)
            if begun:
                yield stream_body(sse(error_body(error)))
            else:
                await context.send_initial_metadata((*_metadata(error), *answer_headers()))
                yield json_body(encode(error_body(error)))
            raise

    return call


def _headers(first: httpbody_pb2.HttpBody) -> tuple[tuple[str, str], ...]:
    streamed = first.content_type == EVENT_STREAM
    return (*(STREAM_METADATA if streamed else ()), *answer_headers())


def _service_error(raised: Exception) -> ServiceError:
    if isinstance(raised, ServiceError):
        return raised
    if isinstance(raised, aio.AioRpcError):
        return from_rpc_error(raised, "a service behind this one")
    return InternalError()


def _metadata(error: ServiceError) -> tuple[tuple[str, str], ...]:
    status = ("x-http-status", str(error.row.http_status))
    if error.reason is Reason.UNAUTHENTICATED:
        return (status, ("www-authenticate", "Bearer"))  # RFC 9110: a 401 says how to do better
    if error.retry_delay_s is None:
        return (status,)
    return (status, ("retry-after", str(max(1, math.ceil(error.retry_delay_s)))))
