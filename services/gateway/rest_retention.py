"""What a REST call says of its generation's id and keeping: headers, and one field of the body."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from google.api import httpbody_pb2
from grpc import aio

from services.gateway.fingerprint import body_fingerprint
from services.gateway.offered_id import GENERATION_ID_KEY, IDEMPOTENCY_KEY
from services.gateway.parameter_body import RouteBody, read_parameter
from services.gateway.rest_body import BodyReader
from services.gateway.retention import Retention, RetentionLimits
from services.gateway.retention_wire import check_keep
from services.gateway.wire import check_generation_id, new_generation_id
from services.runtime.errors import InvalidArgumentError

KEEP_KEY, KEEP_FIELD = "x-keep-seconds", "x_keep_seconds"

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"


@dataclass(frozen=True)
class Wish:
    """What a call wants."""

    generation_id: str
    """The client's own, or a new one."""
    is_named: bool
    """It is the client's own."""
    keep_s: float
    """How long to run on without a reader; 0: not at all."""
    fingerprint: bytes
    """Of the call, where it is named."""

    def retention(self, form: Any, limits: RetentionLimits) -> Retention | None:
        """None where nobody could come back."""
        if not self.is_named and not self.keep_s:
            return None
        replay_s = self.keep_s or limits.default_keep_s
        return Retention(self.fingerprint, self.keep_s, replay_s, form)


async def read_wish(
    request: httpbody_pb2.HttpBody,
    body: RouteBody,
    context: _Context,
    bodies: BodyReader,
    limits: RetentionLimits,
) -> Wish:
    """Raises InvalidArgumentError naming the header or field."""
    headers = _headers(context)
    offered, keep_s = _offered(headers), _keep_s(headers, body, limits)
    if not offered:
        return Wish(new_generation_id(), False, keep_s, b"")
    data = request.data
    digest = await bodies.work(len(data), partial(body_fingerprint, body.route.value, data))
    return Wish(offered, True, keep_s, digest)


def _headers(context: _Context) -> Mapping[str, str]:
    wanted = (GENERATION_ID_KEY, IDEMPOTENCY_KEY, KEEP_KEY)
    return {
        key: value
        for key, value in context.invocation_metadata() or ()
        if key in wanted and isinstance(value, str)
    }


def _offered(headers: Mapping[str, str]) -> str:
    names = [key for key in (GENERATION_ID_KEY, IDEMPOTENCY_KEY) if key in headers]
    if not names:
        return ""
    for name in names:
        check_generation_id(headers[name], name)
    if len({headers[name] for name in names}) > 1:
        same = f"the same as {GENERATION_ID_KEY}, {headers[GENERATION_ID_KEY]!r}, or absent"
        raise InvalidArgumentError(IDEMPOTENCY_KEY, headers[IDEMPOTENCY_KEY], same)
    return headers[names[0]]


def _keep_s(headers: Mapping[str, str], body: RouteBody, limits: RetentionLimits) -> float:
    given = read_parameter(body, KEEP_FIELD)
    if given is not None:
        check_keep(given.field, given.value, limits)
    if KEEP_KEY not in headers:
        return 0.0 if given is None else float(given.value)
    said = headers[KEEP_KEY]
    if not said.isascii() or not said.isdigit() or len(said) > 4:
        raise InvalidArgumentError(KEEP_KEY, said, f"1 to {limits.max_keep_s:g}")
    check_keep(KEEP_KEY, int(said), limits)
    if given is not None and given.value != int(said):
        raise InvalidArgumentError(KEEP_KEY, said, f"the same as {given.field}, {given.value}")
    return float(said)
