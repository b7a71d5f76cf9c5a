"""Finds the caller of every call, REST and native alike, before anything of its request is read. Deny by default."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import grpc
import structlog
from grpc import aio

from services.gateway.authentication import Authenticator
from services.gateway.call_caller import bind_caller
from services.gateway.refusal import refusing_unread
from services.runtime.errors import UnauthenticatedError

_HEALTH, _REST_HEALTH = "/grpc.health.v1.Health/", "/hotline.v1.OpenAIService/GetHealth"
"""For everybody: what load balancers and probes ask."""
FOR_CLIENTS = (
    "/hotline.v1.InferenceService/",
    "/hotline.v1.SessionService/",
    "/hotline.v1.ModelService/",
    "/hotline.v1.OpenAIService/",
    "/grpc.reflection.v1alpha.ServerReflection/",
    "/grpc.reflection.v1.ServerReflection/",
)
"""For callers. Whatever else the server may have (channelz, what a later version adds) does not exist here."""

_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"


class AuthenticationInterceptor(aio.ServerInterceptor):
    """Binds the caller for call_caller.caller_of; inside the interceptors that make errors into answers."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler:
        """Let the call on with its caller, or refuse it by its metadata alone."""
        method = handler_call_details.method
        if method.startswith(_HEALTH) or method == _REST_HEALTH:
            return await continuation(handler_call_details)
        if not method.startswith(FOR_CLIENTS):
            return None
        metadata = handler_call_details.invocation_metadata or ()
        sent = [v for k, v in metadata if k == "authorization" and isinstance(v, str)]
        try:
            caller = self._authenticator.caller(sent)
        except UnauthenticatedError as error:
            return refusing_unread(error)
        # This coroutine and the handler are one task, a call's own, so both bindings end with the call.
        bind_caller(caller)
        if caller.key_id:
            structlog.contextvars.bind_contextvars(key=caller.key_id)
        return await continuation(handler_call_details)
