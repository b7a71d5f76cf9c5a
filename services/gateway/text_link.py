"""The gateway's way to the texts of one tokenizer: one Detokenise stream for all of them, opened again when it broke."""

import asyncio

from grpc import aio
from hotline.v1 import tokenizer_pb2_grpc

from services.gateway.interfaces import TextOptions, TextSink
from services.gateway.text_connection import TextConnection, TextHandle


class TextLink:
    """At most one stream at a time; opened on first use, and again on the first use after it broke."""

    def __init__(self, name: str, channel: aio.Channel) -> None:
        self.name = name
        self._stub: tokenizer_pb2_grpc.TokenizerServiceAsyncStub = (
            tokenizer_pb2_grpc.TokenizerServiceStub(channel)
        )
        self._connection: TextConnection | None = None
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def open_count(self) -> int:
        """Choices whose text is under way here."""
        return self._connection.open_count if self._connection is not None else 0

    def open(self, options: TextOptions, choice_index: int, sink: TextSink) -> TextHandle:
        """Begin the text of one choice."""
        if self._connection is None or not self._connection.alive:
            self._connection = TextConnection(self.name, self._stub)
            self._ending.add(self._connection.task)
            self._connection.task.add_done_callback(self._ending.discard)
        return self._connection.open(options, choice_index, sink)

    def abandon(self) -> None:
        """Give the stream up: the process is there, but does not answer. Its texts hear UnavailableError at once."""
        if self._connection is not None:
            self._connection.abandon()

    async def close(self) -> None:
        """End the stream. Idempotent."""
        self.abandon()
        if self._ending:
            await asyncio.wait(set(self._ending))
