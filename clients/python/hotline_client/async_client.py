"""The client for asyncio."""

import uuid
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf import duration_pb2
from grpc import aio
from hotline.v1 import (
    conversation_pb2,
    inference_pb2,
    inference_pb2_grpc,
    model_pb2,
    model_pb2_grpc,
    sampling_pb2,
    session_pb2,
    session_pb2_grpc,
)

from hotline_client.connection import Connection
from hotline_client.errors import from_rpc
from hotline_client.messages import Message
from hotline_client.policy import NetworkPolicy
from hotline_client.session import Leave, Session
from hotline_client.stream import GenerationStream

Reply = TypeVar("Reply")
CALL_TIMEOUT_S = 10.0
"""For calls that do not generate."""


@dataclass(frozen=True)
class Options:
    """How to generate."""

    sampling: sampling_pb2.SamplingParameters | None = None
    """None: the server's defaults."""
    render: conversation_pb2.RenderOptions | None = None
    """None: thought and answer in one text; tags and all."""
    deadline_s: float = 120.0
    """One budget for everything: the queue, the prompt, the answer, and every attempt."""
    priority: int = 0
    """-100 (first) to 100 (last)."""
    waits_for_session: bool = False
    """Whether a turn waits for another one of its session; else it is refused with SESSION_BUSY."""


class AsyncClient:
    """A client of one server, or of the edge before several. Use it as an async context, or `close` it.

    Args:
        address: `host:port` or `unix:/path`.
        api_key: None: none.
        tls: True: the system's authorities; bytes: the PEM of another one; False: plain, for this machine.

    Raises ValueError for an API key that would travel in the clear to another machine.
    """

    def __init__(
        self,
        address: str,
        *,
        api_key: str | None = None,
        tls: bool | bytes = False,
        model: str = "",
        policy: NetworkPolicy | None = None,
    ) -> None:
        self._policy = policy or NetworkPolicy()
        self._connection = Connection(address, api_key, tls, self._policy)
        self._model = model

    async def __aenter__(self) -> "AsyncClient":
        """Nothing is opened before the first call."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()

    async def close(self) -> None:
        """Let go of the connections; generations that run are cancelled by their streams. Idempotent."""
        await self._connection.close()

    def generate(
        self,
        messages: Sequence[Message],
        options: Options | None = None,
        *,
        session_id: str = "",
        generation_id: str = "",
    ) -> GenerationStream:
        """Begin a generation; nothing is sent before the stream is read.

        Args:
            generation_id: 1 to 128 characters of [A-Za-z0-9._:-], one for each thing to generate; empty: one is made.
        """
        options = options or Options()
        busy = inference_pb2.SESSION_BUSY_POLICY_REFUSE
        if options.waits_for_session:
            busy = inference_pb2.SESSION_BUSY_POLICY_WAIT
        request = inference_pb2.GenerateRequest(
            generation_id=generation_id or uuid.uuid4().hex,
            session_id=session_id,
            model="" if session_id else self._model,
            messages=messages,
            sampling=options.sampling,
            render=options.render,
            priority=options.priority or None,
            session_busy=busy,
        )
        return self.send(request, options.deadline_s)

    def send(self, request: inference_pb2.GenerateRequest, deadline_s: float) -> GenerationStream:
        """A request of the contract, with what this library needs of it filled in where it is not set."""
        complete = inference_pb2.GenerateRequest()
        complete.CopyFrom(request)
        complete.generation_id = complete.generation_id or uuid.uuid4().hex
        if not complete.HasField("disconnect"):
            complete.disconnect.keep_s = self._policy.keep_s
        if not complete.heartbeat_interval_ms:
            complete.heartbeat_interval_ms = round(self._policy.heartbeat_interval_s * 1000)
        return GenerationStream(self._connection, complete, deadline_s, self._policy)

    async def models(self) -> Sequence[model_pb2.Model]:
        """What is served. Raises HotlineError."""
        stub = model_pb2_grpc.ModelServiceStub(self._connection.channel)
        request = model_pb2.ListModelsRequest()
        return (await self._reply(stub.ListModels(request, **self._call()))).models

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        """Tokens of a prompt, images included. Raises HotlineError."""
        stub = inference_pb2_grpc.InferenceServiceStub(self._connection.channel)
        request = inference_pb2.CountTokensRequest(model=self._model, messages=messages)
        return (await self._reply(stub.CountTokens(request, **self._call()))).prompt_tokens

    async def cancel(self, generation_id: str) -> bool:
        """End a generation of this owner; whether it was running. Raises HotlineError."""
        stub = inference_pb2_grpc.InferenceServiceStub(self._connection.channel)
        request = inference_pb2.CancelRequest(generation_id=generation_id)
        call = stub.Cancel(request, **self._call(("x-generation-id", generation_id)))
        return (await self._reply(call)).cancelled

    def session(
        self,
        messages: Sequence[Message] = (),
        *,
        idle_ttl_s: float | None = None,
        history: session_pb2.HistoryPolicy | None = None,
        cache_scope: session_pb2.CacheScope.ValueType = session_pb2.CACHE_SCOPE_UNSPECIFIED,
        leave: Leave = "clear",
    ) -> "SessionContext":
        """A new session, as an async context.

        Args:
            messages: to begin with, typically the system prompt.
            leave: what the context's end does to it, see Session.
        """
        request = session_pb2.CreateSessionRequest(
            model=self._model, history=history, cache_scope=cache_scope, messages=messages
        )
        if idle_ttl_s is not None:
            request.idle_ttl.CopyFrom(_duration(idle_ttl_s))
        return SessionContext(self, request, leave)

    async def open_session(self, request: session_pb2.CreateSessionRequest) -> session_pb2.Session:
        """Open a session. Raises HotlineError."""
        return (await self._reply(self._sessions.CreateSession(request, **self._call()))).session

    async def resume_session(self, session_id: str, leave: Leave = "clear") -> Session:
        """A session that was kept. Raises HotlineError, SESSION_NOT_FOUND where it is gone."""
        request = session_pb2.GetSessionRequest(session_id=session_id)
        call = self._sessions.GetSession(request, **self._call(("x-session-id", session_id)))
        return Session(self, (await self._reply(call)).session, leave)

    async def touch_session(self, session_id: str) -> None:
        """Begin its idle TTL again. Raises HotlineError."""
        request = session_pb2.TouchSessionRequest(session_id=session_id)
        named = self._call(("x-session-id", session_id))
        await self._reply(self._sessions.TouchSession(request, **named))

    async def clear_session(self, session_id: str, *, forget_history: bool) -> None:
        """Make its KV cache unreachable. Raises HotlineError."""
        request = session_pb2.ClearSessionRequest(
            session_id=session_id, forget_history=forget_history
        )
        named = self._call(("x-session-id", session_id))
        await self._reply(self._sessions.ClearSession(request, **named))

    async def delete_session(self, session_id: str) -> None:
        """Forget it. Raises HotlineError."""
        request = session_pb2.DeleteSessionRequest(session_id=session_id)
        named = self._call(("x-session-id", session_id))
        await self._reply(self._sessions.DeleteSession(request, **named))

    @property
    def _sessions(self) -> "session_pb2_grpc.SessionServiceAsyncStub":
        return session_pb2_grpc.SessionServiceStub(self._connection.channel)

    def _call(self, *names: tuple[str, str]) -> dict[str, Any]:
        return {"timeout": CALL_TIMEOUT_S, "metadata": self._connection.metadata + names}

    async def _reply(self, call: Awaitable[Reply]) -> Reply:
        channel = self._connection.channel
        try:
            return await call
        except aio.AioRpcError as error:
            told = from_rpc(error)
            if told.reason in ("UNREACHABLE", "DEADLINE_EXCEEDED"):
                await self._connection.renew(channel)
            raise told from None


class SessionContext:
    """Opens a session when entered."""

    def __init__(
        self, client: AsyncClient, request: session_pb2.CreateSessionRequest, leave: Leave
    ) -> None:
        self._client, self._request, self._leave = client, request, leave
        self._session: Session | None = None

    async def __aenter__(self) -> Session:
        """Open it. Raises HotlineError."""
        opened = await self._client.open_session(self._request)
        self._session = Session(self._client, opened, self._leave)
        self._session.remember(self._request.messages)
        return await self._session.__aenter__()

    async def __aexit__(self, *error: object) -> None:
        """Leave it."""
        if self._session is not None:
            await self._session.__aexit__(*error)


def _duration(seconds: float) -> duration_pb2.Duration:
    duration = duration_pb2.Duration()
    duration.FromMilliseconds(round(seconds * 1000))
    return duration
