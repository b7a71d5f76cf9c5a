"""SessionService, for native clients."""

from typing import Any, TypeAlias

from grpc import aio
from hotline.v1 import session_pb2, session_pb2_grpc

from services.gateway import session_wire
from services.gateway.call_caller import caller_of
from services.gateway.pool import Pool
from services.gateway.session_opening import SessionOpening
from services.gateway.sessions.sessions import Sessions, TtlFields

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"


class SessionServicer(session_pb2_grpc.SessionServiceServicer):
    """The contract is in session.proto."""

    def __init__(self, sessions: Sessions, pool: Pool) -> None:
        self._sessions, self._opening = sessions, SessionOpening(sessions, pool)

    async def CreateSession(
        self, request: session_pb2.CreateSessionRequest, context: _Context
    ) -> session_pb2.CreateSessionResponse:
        """Open a session."""
        session = await self._opening.open(
            caller_of(context),
            request.model,
            session_wire.wanted(request),
            request.messages,
            TtlFields(),
        )
        return session_pb2.CreateSessionResponse(session=session_wire.session(session))

    async def GetSession(
        self, request: session_pb2.GetSessionRequest, context: _Context
    ) -> session_pb2.GetSessionResponse:
        """Tell what a session holds."""
        session = await self._sessions.get(caller_of(context).owner, request.session_id)
        return session_pb2.GetSessionResponse(session=session_wire.session(session))

    async def ListSessions(
        self, request: session_pb2.ListSessionsRequest, context: _Context
    ) -> session_pb2.ListSessionsResponse:
        """A page of the caller's sessions."""
        session_wire.check_page_size("page_size", request.page_size)
        after = session_wire.page_end(request.page_token)
        owner = caller_of(context).owner
        page, end = await self._sessions.page(owner, request.page_size, after)
        return session_pb2.ListSessionsResponse(
            sessions=map(session_wire.session, page), next_page_token=session_wire.page_token(end)
        )

    async def TouchSession(
        self, request: session_pb2.TouchSessionRequest, context: _Context
    ) -> session_pb2.TouchSessionResponse:
        """Begin the idle TTL again."""
        expire_time_s = await self._sessions.touch(caller_of(context).owner, request.session_id)
        return session_pb2.TouchSessionResponse(expire_time=session_wire.timestamp(expire_time_s))

    async def ClearSession(
        self, request: session_pb2.ClearSessionRequest, context: _Context
    ) -> session_pb2.ClearSessionResponse:
        """Make its KV unreachable."""
        session = await self._sessions.clear(
            caller_of(context).owner, request.session_id, request.forget_history
        )
        return session_pb2.ClearSessionResponse(session=session_wire.session(session))

    async def DeleteSession(
        self, request: session_pb2.DeleteSessionRequest, context: _Context
    ) -> session_pb2.DeleteSessionResponse:
        """Forget it."""
        await self._sessions.delete(caller_of(context).owner, request.session_id)
        return session_pb2.DeleteSessionResponse()
