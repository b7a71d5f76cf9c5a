"""Opening a session with messages."""

from collections.abc import Sequence

from hotline.v1 import conversation_pb2

from services.gateway.caller import Caller
from services.gateway.parameters import check_conversation_size
from services.gateway.pool import Pool
from services.gateway.session_messages import stored
from services.gateway.sessions.record import Session
from services.gateway.sessions.sessions import Sessions, TtlFields, Wanted
from services.runtime.errors import InvalidArgumentError, ServiceError

MAX_OPENING_BYTES = 1024 * 1024
"""Text of the messages that a session is opened with; every gateway that has a turn of it holds them."""


class SessionOpening:
    """Opens sessions."""

    def __init__(self, sessions: Sessions, pool: Pool) -> None:
        self._sessions, self._pool = sessions, pool

    async def open(
        self,
        caller: Caller,
        model: str,
        wanted: Wanted,
        messages: Sequence[conversation_pb2.Message],
        fields: TtlFields,
    ) -> Session:
        """A new session of the caller's.

        Raises ModelNotFoundError, InvalidArgumentError, InvalidMediaError, OverloadedError.
        """
        name = self._pool.model(model, caller).name
        session = self._sessions.begin(caller.owner, name, wanted, fields)
        _check(messages)
        # First, so that whoever may have no more sessions stores no images.
        session = await self._sessions.keep(session)
        if not messages:
            return session
        store = self._sessions.store
        try:
            preamble = await stored(messages, session.session_id, store.media)
            return await self._sessions.furnish(session, preamble)
        except ServiceError:
            await store.delete(session.owner, session.session_id)
            raise


def _check(messages: Sequence[conversation_pb2.Message]) -> None:
    if messages:
        check_conversation_size(len(messages), [len(message.parts.parts) for message in messages])
    text_bytes = 0
    for index, message in enumerate(messages):
        if message.role not in conversation_pb2.Role.values() or not message.role:
            raise InvalidArgumentError(f"messages[{index}].role", message.role, "a role")
        if message.tool_calls or message.role == conversation_pb2.ROLE_TOOL:
            raise InvalidArgumentError(
                f"messages[{index}]", "tools", "a message without tool calls: they belong to turns"
            )
        text_bytes += len(message.text.encode())
        for place, part in enumerate(message.parts.parts):
            path = f"messages[{index}].content[{place}]"
            kind = part.WhichOneof("kind")
            if kind not in ("text", "image"):
                raise InvalidArgumentError(path, kind or "nothing", "a text or an image")
            text_bytes += len(part.text.encode())
            if part.image.media_digest:
                raise InvalidArgumentError(
                    f"{path}.image.media_digest", "a digest", "the image itself: the session is new"
                )
    if text_bytes > MAX_OPENING_BYTES:
        limit = f"at most {MAX_OPENING_BYTES} bytes"
        raise InvalidArgumentError("messages", f"{text_bytes} bytes of text", limit)
