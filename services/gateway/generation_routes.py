"""GET /v1/generations/{id}/events and POST /v1/generations/{id}/cancel."""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, TypeAlias

import msgspec
from google.api import httpbody_pb2
from grpc import aio
from hotline.v1 import openai_pb2

from services.gateway.call_caller import caller_of
from services.gateway.cancellation import Cancellation
from services.gateway.field_names import renamed
from services.gateway.openai_response import encode
from services.gateway.peers import Peers
from services.gateway.registry import Registry
from services.gateway.rest_answers import PREFIX, json_body
from services.gateway.rest_form import CHAT_PREFIX, COMPLETION_PREFIX
from services.gateway.rest_stream import resumed
from services.gateway.settings import GatewaySettings
from services.gateway.wire import check_generation_id
from services.runtime.errors import InvalidArgumentError, ServiceError

LAST_EVENT_ID_KEY = "last-event-id"
_EVENTS = PREFIX + "StreamGenerationEvents"
_NUMBER = re.compile(r"[0-9]{1,19}")

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"
_Bodies: TypeAlias = AsyncGenerator[httpbody_pb2.HttpBody, None]


class CancelledBody(msgspec.Struct):
    """The answer of cancel."""

    id: str
    object: str
    cancelled: bool
    """Whether it ran."""


class GenerationRoutes:
    """What can be done to a generation by its id, or by the id of its answer."""

    def __init__(
        self,
        registry: Registry,
        cancellation: Cancellation,
        peers: Peers,
        settings: GatewaySettings,
    ) -> None:
        self._registry, self._cancellation, self._peers = registry, cancellation, peers
        self._heartbeat_s = settings.sse_heartbeat_s

    async def events(
        self, request: openai_pb2.StreamGenerationEventsRequest, context: _Context
    ) -> _Bodies:
        """Resume a stream."""
        owner = caller_of(context).owner
        name = self._name(owner, request.generation_id)
        peer = ""
        if not self._registry.knows(owner, name):
            peer = await self._peers.holder(owner, name, context)
        if peer:
            relayed = self._peers.relay(peer, _EVENTS, request, httpbody_pb2.HttpBody, context)
            async with aclosing(relayed):
                async for body in relayed:
                    yield body
            return
        after = _last_event_id(context, request.after)
        try:
            kept = self._registry.find(owner, name, after)
        except ServiceError as error:
            raise renamed(error, {"after_sequence": "after"}) from error
        chunks = kept.retention.form.chunks(*kept.replay.before(after))
        events = self._registry.resume(owner, name, after, self._heartbeat_s)
        bodies = resumed(events, chunks, after)
        async with aclosing(bodies):
            async for body in bodies:
                yield body

    async def cancel(
        self, request: openai_pb2.CancelGenerationRequest, context: _Context
    ) -> _Bodies:
        """Cancel a generation."""
        owner = caller_of(context).owner
        name = self._name(owner, request.generation_id)
        cancelled = await self._cancellation.cancel(owner, name, context)
        yield json_body(encode(CancelledBody(name, "generation", cancelled)))

    def _name(self, owner: str, said: str) -> str:
        """The generation's id, also where that of its answer was said."""
        check_generation_id(said)
        if self._registry.knows(owner, said):
            return said
        return said.removeprefix(CHAT_PREFIX).removeprefix(COMPLETION_PREFIX)


def _last_event_id(context: _Context, after: int) -> int:
    """A reader that came back by itself says in a header what it has; its URL is the old one."""
    for key, value in context.invocation_metadata() or ():
        if key == LAST_EVENT_ID_KEY and value:
            if not isinstance(value, str) or not _NUMBER.fullmatch(value):
                raise InvalidArgumentError(LAST_EVENT_ID_KEY, str(value), "the id of an event")
            return int(value)
    return after
