"""The other gateways: calls about a generation that one of them has are passed on to it.

Who has a generation that can be joined or resumed is a lease in the store of sessions. Callers are known by their keys
there as here: what they sent goes along, and nothing is said in their name.
"""

import hashlib
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

from google.protobuf.message import Message
from grpc import aio
from hotline.v1 import inference_pb2, inference_pb2_grpc

from services.gateway.sessions.store import Leases
from services.runtime.channel import open_channel
from services.runtime.errors import UnavailableError
from services.runtime.logs import get_logger, request_metadata
from services.runtime.status import from_rpc_error

_log = get_logger()
Answer = TypeVar("Answer", bound=Message)

RELAYED_KEY = "x-hotline-relayed"
"""A call that a peer passed on goes no further. The edge takes such headers away from clients."""
CANCEL_TIMEOUT_S = 5.0
_PASSED_ON = frozenset(
    {
        "authorization",
        "idempotency-key",
        "last-event-id",
        "x-generation-id",
        "x-keep-seconds",
        "x-session-id",
    }
)


class Peers:
    """Those of one gateway; without any, nothing here costs or does anything.

    Args:
        own_name: this gateway's, unique among them.
        addresses: the others' names and addresses.
        ttl_s: longest time that a generation runs and is kept.
    """

    def __init__(
        self, own_name: str, addresses: Mapping[str, str], leases: Leases, ttl_s: float
    ) -> None:
        self._own_name, self._leases, self._ttl_s = own_name, leases, ttl_s
        self._channels = {
            name: open_channel(address) for name, address in addresses.items() if name != own_name
        }

    async def begin(self, owner: str, generation_id: str, context: Any) -> str:
        """A generation is to begin here: the name of the peer that has it already; empty: it is ours."""
        if not self._asks(context):
            return ""
        try:
            name = await self._leases.claim(_key(owner, generation_id), self._own_name, self._ttl_s)
        except UnavailableError:
            return ""  # better twice, where nobody can tell, than not at all
        return name if name in self._channels else ""

    async def holder(self, owner: str, generation_id: str, context: Any) -> str:
        """The name of the peer that has it; empty: none."""
        if not self._asks(context):
            return ""
        name = await self._leases.holder(_key(owner, generation_id))
        return name if name in self._channels else ""

    async def begun(
        self,
        owner: str,
        generation_id: str,
        here: Callable[[], AsyncGenerator[Answer, None]],
        method: str,
        request: Message,
        answer: type[Answer],
        context: Any,
    ) -> AsyncGenerator[Answer, None]:
        """What a call that begins or joins a generation brings: from the peer that has it, else from `here`.

        A peer that does not answer has lost it: then it begins here. Raises as `relay`, and as `here` does.
        """
        peer = await self.begin(owner, generation_id, context)
        if peer:
            heard = False
            try:
                async with aclosing(self.relay(peer, method, request, answer, context)) as relayed:
                    async for message in relayed:
                        heard = True
                        yield message
            except UnavailableError:
                if heard:
                    raise
                await self.take_over(owner, generation_id, peer)
            else:
                return
        async with aclosing(here()) as messages:
            async for message in messages:
                yield message

    async def take_over(self, owner: str, generation_id: str, gone: str) -> None:
        """The peer that had it does not answer: it is ours from now on."""
        _log.warning("generation taken over", generation_id=generation_id, upstream=gone)
        key = _key(owner, generation_id)
        await self._leases.release(key, gone)
        await self._leases.claim(key, self._own_name, self._ttl_s)

    async def relay(
        self, name: str, method: str, request: Message, answer: type[Answer], context: Any
    ) -> AsyncGenerator[Answer, None]:
        """The same call, at that peer. Raises what it raised there; UnavailableError where it does not answer.

        Args:
            method: its full name, such as `/hotline.v1.InferenceService/Resume`.
        """
        call = self._channels[name].unary_stream(
            method, request.__class__.SerializeToString, answer.FromString
        )(request, timeout=context.time_remaining(), metadata=self._metadata(context))
        try:
            headers: Any = await call.initial_metadata()
            is_error = any(key == "x-http-status" for key, _ in headers or ())
            async for message in call:
                if not is_error:  # else its body, which is made here again
                    yield message
        except aio.AioRpcError as error:
            raise from_rpc_error(error, f"gateway {name}") from error
        finally:
            call.cancel()

    async def cancel(self, name: str, generation_id: str, context: Any) -> bool:
        """Cancel a generation at that peer; whether it ran there. A peer that does not answer runs nothing."""
        stub = inference_pb2_grpc.InferenceServiceStub(self._channels[name])
        request = inference_pb2.CancelRequest(generation_id=generation_id)
        try:
            answer = await stub.Cancel(
                request, timeout=CANCEL_TIMEOUT_S, metadata=self._metadata(context)
            )
        except aio.AioRpcError:
            return False
        return bool(answer.cancelled)

    def _asks(self, context: Any) -> bool:
        if not self._channels:
            return False
        return all(key != RELAYED_KEY for key, _ in context.invocation_metadata() or ())

    def _metadata(self, context: Any) -> tuple[tuple[str, str], ...]:
        passed_on = tuple(
            (key, value)
            for key, value in context.invocation_metadata() or ()
            if key in _PASSED_ON and isinstance(value, str)
        )
        return (*passed_on, *request_metadata(), (RELAYED_KEY, self._own_name))

    async def close(self) -> None:
        """Close the channels. Idempotent."""
        for channel in self._channels.values():
            await channel.close()


def _key(owner: str, generation_id: str) -> bytes:
    name = f"{len(owner)}:{owner}:{generation_id}"
    return b"gen:" + hashlib.sha256(name.encode()).digest()[:16]
