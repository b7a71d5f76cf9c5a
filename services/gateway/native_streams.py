"""The streams of InferenceService: generate, resume, and generate at the client's pace."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, TypeAlias

from grpc import aio
from hotline.v1 import generation_pb2, inference_pb2

from services.gateway import wire
from services.gateway.call_caller import caller_of
from services.gateway.call_deadline import deadline_of
from services.gateway.events import Failed, Heartbeat, Numbered
from services.gateway.interfaces import GenerationRequest
from services.gateway.native_wire import heartbeat_s
from services.gateway.pace import Pace
from services.gateway.registry import Registry
from services.gateway.retention_wire import native_retention
from services.gateway.session_turns import SessionTurns
from services.gateway.settings import GatewaySettings
from services.runtime.errors import InvalidArgumentError, ServiceError

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"
_Events: TypeAlias = AsyncGenerator[Numbered, None]
_Messages: TypeAlias = AsyncGenerator[generation_pb2.GenerationEvent, None]
_Paced: TypeAlias = AsyncIterator[inference_pb2.GeneratePacedRequest]
_FREE = frozenset({"accepted", "heartbeat", "finished", "failed"})
"""Events that need no credit."""


class NativeStreams:
    """Every stream of a native client."""

    def __init__(
        self, turns: SessionTurns, registry: Registry, settings: GatewaySettings
    ) -> None:
        self._turns, self._registry = turns, registry
        self._generation_timeout_s = settings.generation_timeout_s

    async def generate(
        self, request: inference_pb2.GenerateRequest, context: _Context
    ) -> _Messages:
        """Begin or join a generation."""
        events = await self._begin(await self._checked(request, context), request)
        messages = _messages(events, was_accepted=False)
        async with aclosing(messages):
            async for message in messages:
                yield message

    async def resume(self, request: inference_pb2.ResumeRequest, context: _Context) -> _Messages:
        """Go on with a generation."""
        wire.check_generation_id(request.generation_id)
        after, owner = request.after_sequence, caller_of(context).owner
        events = self._registry.resume(owner, request.generation_id, after, heartbeat_s(request))
        messages = _messages(events, was_accepted=after > 0)
        async with aclosing(messages):
            async for message in messages:
                yield message

    async def paced(self, requests: _Paced, context: _Context) -> _Messages:
        """Begin or join a generation, whose events wait for credits."""
        first = await anext(aiter(requests), None)
        if first is None or first.WhichOneof("act") != "generate":
            act = "nothing" if first is None else first.WhichOneof("act") or "nothing"
            raise InvalidArgumentError("act", act, "generate, in the first message")
        generation = await self._checked(first.generate, context)
        events = await self._begin(generation, first.generate)
        pace = Pace(self._generation_timeout_s)
        listening = asyncio.create_task(self._listen(requests, generation, pace))
        try:
            messages = _messages(events, was_accepted=False)
            async with aclosing(messages):
                async for message in messages:
                    await pace.spend(0 if message.WhichOneof("event") in _FREE else 1)
                    yield message
        finally:
            listening.cancel()
            await asyncio.wait((listening,))

    async def _checked(
        self, request: inference_pb2.GenerateRequest, context: _Context
    ) -> GenerationRequest:
        deadline_s, caller = deadline_of(context, self._generation_timeout_s), caller_of(context)
        model, session = await self._turns.model(request.session_id, request.model, caller)
        generation = wire.generation_request(request, model.name, caller, deadline_s)
        waits = request.session_busy == inference_pb2.SESSION_BUSY_POLICY_WAIT
        return self._turns.turn(generation, session, model, waits)

    async def _begin(
        self, generation: GenerationRequest, request: inference_pb2.GenerateRequest
    ) -> _Events:
        retention = await native_retention(request, generation, self._registry.limits)
        return self._registry.stream(generation, retention, heartbeat_s(request))

    async def _listen(self, requests: _Paced, generation: GenerationRequest, pace: Pace) -> None:
        try:
            async for request in requests:
                self._obey(request, generation, pace)
        except ServiceError as error:
            pace.fail(error)
        else:
            pace.lift()  # nothing more can be said

    def _obey(
        self,
        request: inference_pb2.GeneratePacedRequest,
        generation: GenerationRequest,
        pace: Pace,
    ) -> None:
        match request.WhichOneof("act"):
            case "credits":
                pace.add(request.credits)
            case "cancel":
                if not request.cancel:
                    raise InvalidArgumentError("cancel", False, "true where it is set")
                self._registry.cancel(generation.owner, generation.generation_id)
                pace.lift()  # the end follows what waits
            case "generate":
                raise InvalidArgumentError("act", "generate", "credits or cancel, once it runs")
            case _:
                raise InvalidArgumentError("act", "nothing", "credits or cancel")


async def _messages(events: _Events, was_accepted: bool) -> _Messages:
    """As the contract has them. Raises the error of a generation that was never accepted."""
    async with aclosing(events):
        async for numbered in events:
            event = numbered.event
            if isinstance(event, Failed) and not was_accepted:
                raise event.error
            was_accepted = was_accepted or not isinstance(event, Heartbeat)
            yield wire.event(numbered)
