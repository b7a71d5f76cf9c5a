"""Admission of calls, before their messages are decoded; innermost, where the caller is known."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

import grpc
from grpc import aio

from services.gateway.admission import Admission
from services.gateway.call_caller import bound_caller
from services.gateway.call_entry import bind_entry
from services.gateway.call_headers import answer_headers, bind_headers
from services.gateway.caller import Caller
from services.gateway.offered_id import offered_id
from services.gateway.rate_limit_headers import rate_limit_headers
from services.gateway.refusal import refusing_unread
from services.gateway.rest_answers import PREFIX
from services.runtime.errors import OverloadedError, RateLimitedError, ServiceError
from services.runtime.incoming import Read, request_reader

_NATIVE = "/hotline.v1.InferenceService/"
_NATIVELY = frozenset({_NATIVE + "Generate", _NATIVE + "GeneratePaced"})
GENERATING = _NATIVELY | {PREFIX + "CreateChatCompletion", PREFIX + "CreateCompletion"}
"""Methods that take a seat, and one of the key's requests."""
READING = frozenset(
    (
        *(_NATIVE + name for name in ("CountTokens", "Tokenize", "Detokenise")),
        "/hotline.v1.SessionService/CreateSession",
        *(
            PREFIX + name
            for name in (
                "CreateTokenization",
                "CreateDetokenization",
                "CreateSessionObject",
                "ClearKeyValueCache",
            )
        ),
    )
)
"""Methods whose messages may be large: they hold their bytes. What works on them has a waiting room of its own."""

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"
_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
_Bodies: TypeAlias = AsyncGenerator[Any, None]


class AdmissionInterceptor(aio.ServerInterceptor):
    """Takes from the gateway's bounds and the key's limits for as long as a call runs.

    Args:
        runs: whether a generation can be joined, by its owner and id.
    """

    def __init__(
        self, admission: Admission, runs: Callable[[str, str], bool] = lambda owner, name: False
    ) -> None:
        self._admission, self._runs = admission, runs

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler:
        """Refuse a call that has no room before its message is received, or let it in."""
        method = handler_call_details.method
        handler: Any = await continuation(handler_call_details)
        if handler is None or method not in GENERATING | READING:
            untouched: _Handler = handler
            return untouched
        if method in READING:
            return self._reading(handler)
        caller = bound_caller()
        allowance = self._admission.allowance(caller)
        if allowance is not None:
            bind_headers(lambda: rate_limit_headers(allowance))
        name = offered_id(handler_call_details.invocation_metadata)
        joins = bool(name) and self._runs(caller.owner, name)
        try:
            if not joins:
                self._admission.check(caller)
        except (OverloadedError, RateLimitedError) as error:
            return refusing_unread(error)
        if handler.request_streaming:
            return self._paced(handler, caller, joins)
        return self._generating(handler, caller, joins)

    def _generating(self, handler: Any, caller: Caller, joins: bool) -> _Handler:
        read = request_reader(handler.request_deserializer)

        async def call(data: bytes, context: _Context) -> _Bodies:
            with self._admission.enter(caller, len(data), joins) as entry:
                bind_entry(entry)
                responses: _Bodies = handler.unary_stream(read(data), context)
                async with aclosing(responses):
                    async for response in responses:
                        yield response

        made: _Handler = grpc.unary_stream_rpc_method_handler(
            call, None, handler.response_serializer
        )
        return made

    def _paced(self, handler: Any, caller: Caller, joins: bool) -> _Handler:
        """As `_generating`, of a method whose first message is the one that asks."""
        read = request_reader(handler.request_deserializer)

        async def call(stream: AsyncGenerator[bytes, None], context: _Context) -> _Bodies:
            first = await anext(stream, b"")
            with self._admission.enter(caller, len(first), joins) as entry:
                bind_entry(entry)
                responses: _Bodies = handler.stream_stream(_requests(first, stream, read), context)
                async with aclosing(responses):
                    async for response in responses:
                        yield response

        made: _Handler = grpc.stream_stream_rpc_method_handler(
            call, None, handler.response_serializer
        )
        return made

    def _reading(self, handler: Any) -> _Handler:
        read = request_reader(handler.request_deserializer)

        async def stream(data: bytes, context: _Context) -> _Bodies:
            with self._admission.hold_bytes(len(data)):
                responses: _Bodies = handler.unary_stream(read(data), context)
                async with aclosing(responses):
                    async for response in responses:
                        yield response

        async def unary(data: bytes, context: _Context) -> Any:
            with self._admission.hold_bytes(len(data)):
                return await handler.unary_unary(read(data), context)

        made: _Handler
        if handler.response_streaming:
            made = grpc.unary_stream_rpc_method_handler(stream, None, handler.response_serializer)
        else:
            made = grpc.unary_unary_rpc_method_handler(unary, None, handler.response_serializer)
        return made


async def _requests(first: bytes, rest: AsyncGenerator[bytes, None], read: Read) -> _Bodies:
    yield read(first)
    async for data in rest:
        yield read(data)


class NativeHeadersInterceptor(aio.ServerInterceptor):
    """Sends the call's headers before a native answer or error; REST answers have their own way (rest_answers.py)."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler:
        """Wrap the native methods that generate."""
        handler: Any = await continuation(handler_call_details)
        if handler is None or handler_call_details.method not in _NATIVELY:
            untouched: _Handler = handler
            return untouched
        build = grpc.unary_stream_rpc_method_handler
        if handler.request_streaming:
            build = grpc.stream_stream_rpc_method_handler
        made: _Handler = build(
            _with_headers(handler.stream_stream or handler.unary_stream),
            handler.request_deserializer,
            handler.response_serializer,
        )
        return made


def _with_headers(
    behaviour: Callable[[Any, _Context], _Bodies],
) -> Callable[[Any, _Context], _Bodies]:
    async def call(request: Any, context: _Context) -> _Bodies:
        begun = False
        try:
            responses = behaviour(request, context)
            async with aclosing(responses):
                async for response in responses:
                    if not begun:
                        begun = True
                        await _send(context)
                    yield response
        except ServiceError:
            if not begun:
                await _send(context)
            raise

    return call


async def _send(context: _Context) -> None:
    headers = answer_headers()
    if headers:
        await context.send_initial_metadata(tuple(headers))
