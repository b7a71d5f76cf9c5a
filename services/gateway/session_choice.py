"""What a REST call says of its session: a header, and two fields of the body."""

from typing import Any, TypeAlias

from grpc import aio

from services.gateway.parameter_body import RouteBody, read_parameter
from services.runtime.errors import InvalidArgumentError

SESSION_KEY = "x-session-id"

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"


def session_of(context: _Context, body: RouteBody) -> str:
    """The session that a call names; empty: none. Raises InvalidArgumentError where it names two."""
    said = next(
        (str(v) for key, v in context.invocation_metadata() or () if key == SESSION_KEY), ""
    )
    given = read_parameter(body, "session_id")
    if given is None or not given.value:
        return said
    if said and said != given.value:
        limit = f"the same as {given.field}, or absent"
        raise InvalidArgumentError(SESSION_KEY, said, limit)
    return str(given.value)


def waits(body: RouteBody) -> bool:
    """Whether the call waits for a turn of its session that runs already. Raises InvalidArgumentError."""
    given = read_parameter(body, "session_wait")
    return given is not None and bool(given.value)
