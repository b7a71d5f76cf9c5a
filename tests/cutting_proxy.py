"""A TCP proxy in this process that cuts its connections when it is told to, or at random."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random

CHUNK_BYTES = 2048


@dataclass
class CuttingProxy:
    """Passes bytes on between clients and one server.

    Args:
        after_bytes: cut each connection once the server has sent so many, chosen at random from this range; None: never.
    """

    server: str
    random: Random
    after_bytes: tuple[int, int] | None = None
    port: int = 0
    cuts: int = 0
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    @property
    def address(self) -> str:
        """Where clients find it."""
        return f"127.0.0.1:{self.port}"

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A connection came."""
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.server.rpartition(":")
        behind, to_behind = await asyncio.open_connection(host, int(port))
        budget = None if self.after_bytes is None else self.random.randint(*self.after_bytes)
        try:
            up = asyncio.create_task(_pass(reader, to_behind, None))
            down = asyncio.create_task(_pass(behind, writer, budget))
            await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
            self.cuts += down.done() and not down.cancelled() and down.result()
            up.cancel()
            down.cancel()
            await asyncio.wait((up, down))
        finally:
            for one in (writer, to_behind):
                one.transport.abort()  # a reset, as a network's change looks

    async def close(self) -> None:
        """Cut all that is left."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


async def _pass(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: int | None
) -> bool:
    """Until the end, or the budget of bytes is spent; whether it was."""
    try:
        while data := await reader.read(CHUNK_BYTES):
            if budget is not None:
                data = data[:budget]
                budget -= len(data)
            writer.write(data)
            await writer.drain()
            if budget == 0:
                return True
    except ConnectionError:
        pass
    return False


@asynccontextmanager
async def cutting_proxy(
    server: str, random: Random, after_bytes: tuple[int, int] | None = None
) -> AsyncGenerator[CuttingProxy, None]:
    """One that listens."""
    proxy = CuttingProxy(server, random, after_bytes)
    listening = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.port = listening.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listening.close()
        await proxy.close()
        await listening.wait_closed()
