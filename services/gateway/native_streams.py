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
from services.gateway.peers import Peers
from services.gateway.registry import Registry
from services.gateway.retention_wire import native_retention
from services.gateway.sampling_wire import check_vocabulary
from services.gateway.session_turns import SessionTurns
from services.gateway.settings import GatewaySettings
from services.runtime.errors import InvalidArgumentError, ServiceError

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"
_Events: TypeAlias = AsyncGenerator[Numbered, None]
_Messages: TypeAlias = AsyncGenerator[generation_pb2.GenerationEvent, None]
_Paced: TypeAlias = AsyncIterator[inference_pb2.GeneratePacedRequest]
_GENERATE, _RESUME = (f"/hotline.v1.InferenceService/{name}" for name in ("Generate", "Resume"))
_EVENT = generation_pb2.GenerationEvent
_FREE = frozenset({"accepted", "heartbeat", "finished", "failed"})
"""Events that need no credit."""


class NativeStreams:
    """Every stream of a native client."""

    def __init__(
        self, turns: SessionTurns, registry: Registry, peers: Peers, settings: GatewaySettings
    ) -> None:
        self._turns, self._registry, self._peers = turns, registry, peers
        self._generation_timeout_s = settings.generation_timeout_s

    async def generate(
        self, request: inference_pb2.GenerateRequest, context: _Context
    ) -> _Messages:
        """Begin or join a generation."""
        messages = await self._begun(await self._checked(request, context), request, context)
        async with aclosing(messages):
            async for message in messages:
                yield message

    async def resume(self, request: inference_pb2.ResumeRequest, context: _Context) -> _Messages:
        """Go on with a generation."""
        wire.check_generation_id(request.generation_id)
        after, owner = request.after_sequence, caller_of(context).owner
        pause_s, messages = heartbeat_s(request), None
        if not self._registry.knows(owner, request.generation_id):
            peer = await self._peers.holder(owner, request.generation_id, context)
            if peer:
                messages = self._peers.relay(peer, _RESUME, request, _EVENT, context)
        if messages is None:
            events = self._registry.resume(owner, request.generation_id, after, pause_s)
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
        messages = await self._begun(generation, first.generate, context)
        pace = Pace(self._generation_timeout_s)
        listening = asyncio.create_task(self._listen(requests, generation, pace))
        try:
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
        check_vocabulary(request.sampling, model.vocabulary_size)
        waits = request.session_busy == inference_pb2.SESSION_BUSY_POLICY_WAIT
        return self._turns.turn(generation, session, model, waits)

    async def _begun(
        self,
        generation: GenerationRequest,
        request: inference_pb2.GenerateRequest,
        context: _Context,
    ) -> _Messages:
        """The events of a generation that begins or is joined, here or at a peer that has it."""
        retention = await native_retention(request, generation, self._registry.limits)

        def here() -> _Messages:
            events = self._registry.stream(generation, retention, heartbeat_s(request))
            return _messages(events, was_accepted=False)

        if retention is None:
            return here()
        call = (_GENERATE, request, _EVENT, context)
        return self._peers.begun(generation.owner, generation.generation_id, here, *call)

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
