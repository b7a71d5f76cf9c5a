"""A bidi stream whose work happens elsewhere: whatever is there is worked on at once, and answered at once."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import TypeVar

In = TypeVar("In")
Out = TypeVar("Out")


async def multiplex(
    requests: AsyncIterator[In],
    process: Callable[[list[In]], Awaitable[Out | None]],
    queue_limit: int,
) -> AsyncGenerator[Out, None]:
    """Answer a stream of messages in order.

    All messages that came while the last ones were worked on are worked on together, so a slow reader or a busy
    pool gets fewer, larger answers.

    Args:
        requests: ends when the peer has no more to say; what it raises is raised here.
        process: makes one answer of some messages, or None where there is nothing to say. Called one at a time.
        queue_limit: messages read ahead; beyond it the transport's flow control holds the peer.
    """
    queue: asyncio.Queue[In | None] = asyncio.Queue(queue_limit)

    async def read() -> None:
        try:
            async for request in requests:
                await queue.put(request)
        finally:
            if not reader.cancelled() and not reader.cancelling():
                await queue.put(None)

    reader = asyncio.create_task(read(), name="detokenise reader")
    try:
        open_ended = True
        while open_ended:
            batch = [await queue.get()]
            while not queue.empty():
                batch.append(queue.get_nowait())
            open_ended = batch[-1] is not None
            messages = [message for message in batch if message is not None]
            answer = await process(messages) if messages else None
            if answer is not None:
                yield answer
        await reader
    finally:
        reader.cancel()
        await asyncio.wait((reader,))
