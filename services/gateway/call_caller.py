"""The caller of the call that is being served."""

from contextvars import ContextVar
from typing import Any

from grpc import aio

from services.gateway.caller import Caller

_caller: ContextVar[Caller] = ContextVar("caller")


def bind_caller(caller: Caller) -> None:
    """Say who calls, in the task of the call; authentication does so, before anything of the request is read."""
    _caller.set(caller)


def bound_caller() -> Caller:
    """The call's caller, where there is no context yet; see `caller_of`."""
    return _caller.get()


def caller_of(context: "aio.ServicerContext[Any, Any]") -> Caller:
    """The call's caller. Raises LookupError, which ends the call, where nobody said who that is."""
    return _caller.get()
