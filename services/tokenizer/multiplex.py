"""A bidi stream whose work happens elsewhere: whatever is there is worked on at once, and answered at once."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Generic, TypeVar

from services.runtime.drain import Drain

In = TypeVar("In")
Out = TypeVar("Out")


class _Inbox(Generic[In]):
    """Messages read ahead; at the limit the reader waits, and the transport's flow control holds the peer."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._messages: list[In] = []
        self._room = asyncio.Event()
        self._room.set()
        self.filled = asyncio.Event()
        """There are messages, or no more will come, or the stream is asked to end."""
        self.ended = False
        """The requests have ended, well or badly."""

    async def read(self, requests: AsyncIterator[In]) -> None:
        try:
            async for request in requests:
                self._messages.append(request)
                self.filled.set()
                if len(self._messages) >= self._limit:
                    self._room.clear()
                    await self._room.wait()
        finally:
            self.ended = True
            self.filled.set()

    async def take(self) -> list[In]:
        """Everything that was read; waits for it."""
        await self.filled.wait()
        return self.take_now()

    def take_now(self) -> list[In]:
        """Everything that was read, which may be nothing."""
        messages, self._messages = self._messages, []
        if not self.ended:
            self.filled.clear()
        self._room.set()
        return messages


async def multiplex(
    requests: AsyncIterator[In],
    process: Callable[[list[In]], Awaitable[Out | None]],
    queue_limit: int,
    drain: Drain,
    is_idle: Callable[[], bool],
    backlog: Callable[[], int] = lambda: 0,
    backlog_limit: int = 1,
) -> AsyncGenerator[Out, None]:
    """Answer a stream of messages in order.

    All messages that came while the last ones were worked on are worked on together, so a slow reader or a busy
    pool gets fewer, larger answers.

    Args:
        requests: ends when the peer has no more to say; what it raises is raised here.
        process: makes one answer of some messages, or None where there is nothing to say. Called one at a time, and
            also without messages as long as there is a backlog.
        queue_limit: messages read ahead.
        drain: once asked for, the stream ends when `is_idle` says that nothing is open.
        backlog: how much of what `process` took is still to be done.
        backlog_limit: at this backlog no more messages are taken.
    """
    inbox: _Inbox[In] = _Inbox(queue_limit)
    reader = asyncio.create_task(inbox.read(requests), name="detokenise reader")
    drain.waiting.add(inbox.filled)
    try:
        while not (drain.asked and is_idle()):
            ended = inbox.ended
            waits = backlog()
            if waits >= backlog_limit:
                messages = []
            else:
                messages = inbox.take_now() if waits else await inbox.take()
            if messages or waits:
                answer = await process(messages)
                if answer is not None:
                    yield answer
            elif ended:
                await reader  # raises what ended the requests
                return
    finally:
        drain.waiting.discard(inbox.filled)
        reader.cancel()
        await asyncio.wait((reader,))
