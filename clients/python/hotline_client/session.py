"""A conversation that the server keeps: each turn sends only what is new."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from hotline.v1 import conversation_pb2, session_pb2

from hotline_client.answer import Answer
from hotline_client.errors import HotlineError
from hotline_client.messages import Message, user
from hotline_client.stream import Event, GenerationStream

if TYPE_CHECKING:
    from hotline_client.async_client import AsyncClient, Options

TOUCHES_PER_TTL = 3
"""An open session touches the server's so often within its idle TTL."""

Leave = Literal["clear", "delete", "keep"]


class Session:
    """An open session; made by AsyncClient.session.

    Args:
        leave: what the end of the context does to the session on the server: `clear` makes its KV cache unreachable and
            forgets its history, `delete` forgets it altogether, `keep` leaves it for a later `resume`.
    """

    def __init__(self, client: "AsyncClient", session: session_pb2.Session, leave: Leave) -> None:
        self._client, self._session, self._leave = client, session, leave
        self._sent: set[bytes] = set()
        self._touching: asyncio.Task[None] | None = None

    @property
    def session_id(self) -> str:
        """32 hexadecimal digits, a secret of its owner's."""
        return self._session.session_id

    async def turn(
        self, text: str, image: bytes | None = None, options: "Options | None" = None
    ) -> Answer:
        """Say something, with a screenshot or without; the whole answer. Raises HotlineError."""
        stream = self.stream([user(text, *([image] if image is not None else []))], options)
        async for _ in stream:
            pass
        return stream.result

    def stream(self, messages: Sequence[Message], options: "Options | None" = None) -> "Turn":
        """Say something; iterate over what comes back."""
        return Turn(self, messages, options)

    def call(self, messages: Sequence[Message], options: "Options | None") -> GenerationStream:
        """One call of a turn, as it is; `stream` adds the care for images."""
        return self._client.generate(messages, options, session_id=self.session_id)

    def thrifty(self, messages: Sequence[Message]) -> list[Message]:
        """The messages with the digests of images that this session has taken before in place of their bytes."""
        return [self._thrifty(message) for message in messages]

    def _thrifty(self, message: Message) -> Message:
        digests = [_digest(part) for part in message.parts.parts]
        if not any(digest in self._sent for digest in digests):
            return message
        thrifty = Message()
        thrifty.CopyFrom(message)
        for part, digest in zip(thrifty.parts.parts, digests, strict=True):
            if digest in self._sent:
                part.image.CopyFrom(conversation_pb2.ImagePart(media_digest=digest))
        return thrifty

    def remember(self, messages: Sequence[Message]) -> None:
        """The server has the images of these messages now."""
        self._sent.update(
            digest
            for message in messages
            for part in message.parts.parts
            if (digest := _digest(part))
        )

    def forget(self) -> None:
        """The server may have none of the images any more."""
        self._sent.clear()

    async def touch(self) -> None:
        """Begin the idle TTL again. Raises HotlineError."""
        await self._client.touch_session(self.session_id)

    async def clear(self, *, forget_history: bool = False) -> None:
        """Make its KV cache unreachable, and forget its history where asked. Raises HotlineError."""
        if forget_history:
            self._sent.clear()
        await self._client.clear_session(self.session_id, forget_history=forget_history)

    async def __aenter__(self) -> "Session":
        """Keep it alive as long as the context is open."""
        self._touching = asyncio.create_task(self._keep_alive(), name="session touches")
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leave it; where the server cannot be reached, it expires by itself."""
        if self._touching is not None:
            self._touching.cancel()
            await asyncio.wait([self._touching])
        with suppress(HotlineError):
            if self._leave == "clear":
                await self.clear(forget_history=True)
            elif self._leave == "delete":
                await self._client.delete_session(self.session_id)

    async def _keep_alive(self) -> None:
        pause_s = max(self._session.idle_ttl.ToMilliseconds() / 1000 / TOUCHES_PER_TTL, 1.0)
        while True:
            await asyncio.sleep(pause_s)
            with suppress(HotlineError):  # the next turn tells whether it is gone
                await self.touch()


class Turn:
    """Iterate over it for the events of one turn. Raises HotlineError."""

    def __init__(
        self, session: Session, messages: Sequence[Message], options: "Options | None"
    ) -> None:
        self._session, self._messages, self._options = session, messages, options
        self._stream = session.call(session.thrifty(messages), options)

    @property
    def result(self) -> Answer:
        """What has come so far."""
        return self._stream.result

    @property
    def sent_bytes(self) -> int:
        """Size of the request that was sent last."""
        return self._stream.sent_bytes

    async def __aiter__(self) -> AsyncGenerator[Event, None]:
        """The events; an image that the server no longer keeps is sent again by itself."""
        try:
            async for event in self._stream:
                yield event
        except HotlineError as error:
            if not error.field.endswith("media_digest"):
                raise
            self._session.forget()
            self._stream = self._session.call(self._messages, self._options)
            async for event in self._stream:
                yield event
        if self.result.turn_committed:
            self._session.remember(self._messages)


def _digest(part: conversation_pb2.Part) -> bytes:
    """SHA-256 of an image's file bytes; empty where there are none."""
    return hashlib.sha256(part.image.data).digest() if part.image.data else b""
