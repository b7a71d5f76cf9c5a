"""The events of one generation, each once and in order, whatever the network does meanwhile."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

import grpc
from grpc import aio
from hotline.v1 import generation_pb2, inference_pb2, inference_pb2_grpc

from hotline_client.answer import Answer
from hotline_client.connection import Connection, Metadata
from hotline_client.errors import UNREACHABLE, HotlineError, from_failed, from_rpc
from hotline_client.policy import NetworkPolicy

CANCEL_TIMEOUT_S = 2.0
"""For telling the server that nobody wants the rest."""

Event = generation_pb2.GenerationEvent


class GenerationStream:
    """Iterate over it for the events, heartbeats left out, up to the terminal one; or await `answer()`.

    A call that breaks before its first event is sent again: the generation's id, minted by this side, makes the server join
    what it began, or replay it. One that breaks later is resumed behind the last event. Closing the iteration before
    its end cancels the generation.

    Raises HotlineError, also for a generation that failed.
    """

    def __init__(
        self,
        connection: Connection,
        request: inference_pb2.GenerateRequest,
        deadline_s: float,
        policy: NetworkPolicy,
    ) -> None:
        self._connection, self._request, self._policy = connection, request, policy
        self._ends_s = time.monotonic() + deadline_s
        self._cursor = 0
        self._failures = 0
        self.state = generation_pb2.GENERATION_STATE_UNSPECIFIED
        """What the last heartbeat said."""
        self.resumes = 0
        """How often it went on over another connection."""
        self.result = Answer(request.generation_id)
        """What has come so far."""

    @property
    def generation_id(self) -> str:
        """Names it in Cancel and Resume."""
        return self._request.generation_id

    @property
    def sent_bytes(self) -> int:
        """Size of the request."""
        return self._request.ByteSize()

    async def answer(self) -> Answer:
        """The whole answer, once it is there."""
        async for _ in self:
            pass
        return self.result

    async def __aiter__(self) -> AsyncGenerator[Event, None]:
        """The events from the next one on."""
        ended = False
        try:
            while not ended:
                try:
                    async with aclosing(self._attempt()) as events:
                        async for event in events:
                            self._failures = 0
                            ended = _is_terminal(event)
                            self.result.add(event)
                            if event.HasField("failed"):
                                raise _Failed(event.failed)
                            yield event
                    error: HotlineError = HotlineError(UNREACHABLE, "The stream ended early.")
                except _Failed as failed:
                    raise from_failed(failed.event) from None
                except aio.AioRpcError as raised:
                    error = from_rpc(raised)
                except TimeoutError:
                    error = HotlineError(UNREACHABLE, "Nothing came, not even a heartbeat.")
                if not ended:
                    await self._recover(error)
        except HotlineError:
            ended = True  # there, or out of reach
            raise
        finally:
            if not ended:
                await self.cancel()

    async def cancel(self) -> None:
        """Tell the server that nobody wants the rest; silent where it cannot be reached."""
        request = inference_pb2.CancelRequest(generation_id=self.generation_id)
        stub = inference_pb2_grpc.InferenceServiceStub(self._connection.channel)
        with suppress(aio.AioRpcError):
            await stub.Cancel(request, timeout=CANCEL_TIMEOUT_S, metadata=self._metadata())

    async def _attempt(self) -> AsyncGenerator[Event, None]:
        """The events of one call, from behind the cursor on."""
        channel = self._channel = self._connection.channel
        call = self._call(channel)
        try:
            while True:
                event: Any = await asyncio.wait_for(call.read(), self._patience_s())
                if event is aio.EOF:
                    # Raises AioRpcError where the call ended with an error that `read` did not tell.
                    if await call.code() is not grpc.StatusCode.OK:
                        raise await _error_of(call)
                    return
                if event.HasField("heartbeat"):
                    self.state = event.heartbeat.state
                    self._failures = 0
                elif event.sequence > self._cursor:
                    self._cursor = event.sequence
                    yield event
                    if _is_terminal(event):
                        return
        finally:
            call.cancel()

    def _call(self, channel: aio.Channel) -> "aio.UnaryStreamCall[Any, Event]":
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        left_s = self._left_s()
        if not self._cursor:
            return stub.Generate(self._request, timeout=left_s, metadata=self._metadata())
        self.resumes += 1
        resume = inference_pb2.ResumeRequest(
            generation_id=self.generation_id,
            after_sequence=self._cursor,
            heartbeat_interval_ms=self._request.heartbeat_interval_ms,
        )
        return stub.Resume(resume, timeout=left_s, metadata=self._metadata())

    def _metadata(self) -> Metadata:
        """By these names an edge finds the gateway that has the generation."""
        names: Metadata = (("x-generation-id", self.generation_id),)
        if self._request.session_id:
            names += (("x-session-id", self._request.session_id),)
        return self._connection.metadata + names

    async def _recover(self, error: HotlineError) -> None:
        """Wait before the next attempt, over a fresh connection. Raises what cannot be mended."""
        policy = self._policy
        self._failures += 1
        if not error.retryable or self._failures >= policy.max_attempts:
            raise error
        if error.reason == UNREACHABLE:
            await self._connection.renew(self._channel)
        pause_s = min(policy.first_pause_s * 2 ** (self._failures - 1), policy.last_pause_s)
        pause_s = max(pause_s * random.uniform(0.5, 1.5), error.retry_delay_s or 0.0)  # noqa: S311
        if pause_s >= self._left_s():
            raise error
        await asyncio.sleep(pause_s)

    def _left_s(self) -> float:
        """Of the one budget for all attempts. Raises HotlineError when there is none left."""
        left_s = self._ends_s - time.monotonic()
        if left_s <= 0:
            raise HotlineError("DEADLINE_EXCEEDED", "No answer came within the deadline.")
        return left_s

    def _patience_s(self) -> float:
        return min(self._policy.silence_limit_s, self._left_s() + 1.0)


class _Failed(Exception):  # noqa: N818  # carries a terminal event out of the loop
    def __init__(self, event: generation_pb2.FailedEvent) -> None:
        super().__init__()
        self.event = event


def _is_terminal(event: Event) -> bool:
    return event.HasField("finished") or event.HasField("failed")


async def _error_of(call: Any) -> aio.AioRpcError:
    return aio.AioRpcError(
        await call.code(),
        await call.initial_metadata(),
        await call.trailing_metadata(),
        await call.details(),
    )
