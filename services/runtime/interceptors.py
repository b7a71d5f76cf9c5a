"""The one place where errors become statuses, and where a call gets its request id and its log line."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, Protocol, TypeAlias

import grpc
from grpc import aio

from services.runtime.errors import InternalError, ServiceError
from services.runtime.incoming import Read, each_request, only_request, request_reader
from services.runtime.logs import REQUEST_ID_KEY, bind_request_id, get_logger
from services.runtime.status import DETAILS_KEY, MESSAGE_BYTES, details, from_rpc_error, grpc_code

_log = get_logger()
_QUIET = ("/grpc.health.v1.Health/", "/grpc.reflection.", "/grpc.channelz.")
"""Methods that probes call all day; logged at DEBUG."""

_CODES: dict[Any, str] = {code.value[0]: code.name for code in grpc.StatusCode}
"""What `context.code()` of grpc.aio, a number, is called."""

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"
_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
_Unary: TypeAlias = Callable[[Any, _Context], Awaitable[Any]]
_Requests: TypeAlias = "Callable[[AsyncIterator[bytes], _Context], Awaitable[Any]]"
_Stream: TypeAlias = Callable[[Any, _Context], AsyncIterator[Any]]
_Begin: TypeAlias = "Callable[[_Context], _Outcome]"


class CallObserver(Protocol):
    """Hears of every call of a method that the server has."""

    def began(self, method: str) -> None:
        """A call, by the full name of its method."""

    def ended(self, method: str, code: str, reason: str, elapsed_s: float) -> None:
        """Its end, once. `reason`: a word of the error table; empty where there was no error of ours."""


class Unobserved:
    """Nobody listens."""

    def began(self, method: str) -> None:
        """See CallObserver."""

    def ended(self, method: str, code: str, reason: str, elapsed_s: float) -> None:
        """See CallObserver."""


class ErrorInterceptor(aio.ServerInterceptor):
    """Wraps every handler: binds the request id, logs the outcome, turns exceptions into statuses.

    ServiceError keeps its reason, message, metadata and retry delay; an AioRpcError of a peer that no one caught
    counts as that peer's error; anything else is INTERNAL, with the traceback in the log and nothing of it on the wire.
    """

    def __init__(self, observer: CallObserver | None = None) -> None:
        self._observer = observer or Unobserved()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler:
        """Wrap the method's handler; unknown methods pass, gRPC answers them UNIMPLEMENTED."""
        handler: Any = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        read = request_reader(handler.request_deserializer)
        requests = _each if handler.request_streaming else _only
        wrap = _wrap_stream if handler.response_streaming else _wrap_unary
        kind = "stream" if handler.response_streaming else "unary"
        asks = "stream" if handler.request_streaming else "unary"
        behaviour = getattr(handler, f"{asks}_{kind}")
        build = getattr(grpc, f"stream_{kind}_rpc_method_handler")
        # No deserialiser of gRPC's: it would answer bytes that are no message in its own words.
        wrapped: _Handler = build(
            wrap(partial(_Outcome, method, self._observer), behaviour, partial(requests, read)),
            None,
            handler.response_serializer,
        )
        return wrapped


async def _only(read: Read, stream: AsyncIterator[bytes], context: _Context) -> Any:
    return await only_request(read, context)  # gRPC allows one of the two ways to read, never both


async def _each(read: Read, stream: AsyncIterator[bytes], context: _Context) -> Any:
    return each_request(read, stream)


def _wrap_unary(begin: _Begin, behaviour: _Unary, requests: _Requests) -> _Unary:
    async def call(stream: Any, context: _Context) -> Any:
        outcome = begin(context)
        try:
            response = await behaviour(await requests(stream, context), context)
        except BaseException as error:
            await outcome.failed(error)
            raise
        outcome.ended("OK")
        return response

    return call


def _wrap_stream(begin: _Begin, behaviour: _Stream, requests: _Requests) -> _Stream:
    async def call(stream: Any, context: _Context) -> AsyncGenerator[Any, None]:
        outcome = begin(context)
        try:
            responses: Any = behaviour(await requests(stream, context), context)
            async with aclosing(responses):
                async for response in responses:
                    yield response
        except BaseException as error:
            await outcome.failed(error)
            raise
        outcome.ended("OK")

    return call


class _Outcome:
    """How one call ended; tells the observer, logs it, and aborts it where it failed."""

    def __init__(self, method: str, observer: CallObserver, context: _Context) -> None:
        self._method, self._context, self._start_s = method, context, time.monotonic()
        self._observer = observer
        observer.began(method)
        metadata = dict(context.invocation_metadata() or ())
        offered = metadata.get(REQUEST_ID_KEY)
        bind_request_id(offered if isinstance(offered, str) else None)

    def ended(self, code: str, **fields: str) -> None:
        log = _log.debug if self._method.startswith(_QUIET) else _log.info
        elapsed_s = time.monotonic() - self._start_s
        self._observer.ended(self._method, code, fields.get("reason", ""), elapsed_s)
        elapsed_ms = round(elapsed_s * 1000, 1)
        log("call", method=self._method, code=code, elapsed_ms=elapsed_ms, **fields)

    async def failed(self, error: BaseException) -> None:
        """Abort the call with the error's status. Returns only where the exception must go on as it is."""
        if isinstance(error, (asyncio.CancelledError, GeneratorExit)):
            self.ended("CANCELLED")
            return
        if isinstance(error, aio.AbortError):
            self.ended(_CODES.get(self._context.code(), "UNKNOWN"))
            return
        if isinstance(error, aio.AioRpcError):
            error = from_rpc_error(error, "a service behind this one")
        if not isinstance(error, ServiceError):
            _log.error("unexpected", method=self._method, exc_info=error)
            error = InternalError()
        # A message may repeat what a user wrote: where it names a field, the field is enough.
        said = {"field": error.field} if error.field else {"message": error.message}
        self.ended(error.row.grpc_code, reason=error.reason.value, **said)
        await self._context.abort(
            grpc_code(error), error.message[:MESSAGE_BYTES], ((DETAILS_KEY, details(error)),)
        )
