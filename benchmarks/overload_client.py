"""The clients of the overload benchmark: cheap, so that one process can ask three times as often as is served."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

import grpc
from grpc import aio
from hotline.v1 import generation_pb2

from services.runtime.channel import open_channel

GENERATE = "/hotline.v1.InferenceService/Generate"
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Answer:
    """How one request ended."""

    kind: str
    """`served`, `refused` (429, RESOURCE_EXHAUSTED), or what else it was."""
    asked_s: float
    first_s: float
    """First byte of the answer."""
    end_s: float


class Client(Protocol):
    """Asks for one generation."""

    async def ask(self) -> Answer:
        """Ask, and read to the end."""


@dataclass
class _Reply:
    """What came over one HTTP/1.1 connection since it was asked."""

    done: "asyncio.Future[None]"
    first_s: float = 0.0
    status: int = 0
    data: bytearray = field(default_factory=bytearray)
    body_at: int = -1
    length: int = -1

    def take(self, data: bytes) -> None:
        self.first_s = self.first_s or time.monotonic()
        self.data += data
        if self.body_at < 0:
            self._head()
        if self.body_at >= 0 and not self.done.done() and self._whole():
            self.done.set_result(None)

    def _head(self) -> None:
        end = self.data.find(b"\r\n\r\n")
        if end >= 0:
            head = bytes(self.data[:end]).lower()
            self.body_at, self.status = end + 4, int(head[9:12])
            _, found, rest = head.partition(b"\r\ncontent-length:")
            self.length = int(rest.partition(b"\r\n")[0]) if found else -1

    def _whole(self) -> bool:
        if self.length >= 0:
            return len(self.data) - self.body_at >= self.length
        return self.data.endswith(b"\r\n0\r\n\r\n")


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self.reply: _Reply | None = None
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.reply is not None:
            self.reply.take(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        if self.reply is not None and not self.reply.done.done():
            self.reply.done.set_exception(ConnectionError("the edge hung up"))


class RestClient:
    """POST /v1/chat/completions with `stream`, over as many kept-alive connections as it takes."""

    def __init__(self, address: str, body: bytes) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self._request = head.encode() + body
        self._idle: list[_Connection] = []

    async def ask(self) -> Answer:
        """See Client."""
        loop = asyncio.get_running_loop()
        asked_s = time.monotonic()
        while self._idle and self._idle[-1].lost:
            self._idle.pop()
        if self._idle:
            connection = self._idle.pop()
        else:
            _, connection = await loop.create_connection(_Connection, self._host, self._port)
        reply = connection.reply = _Reply(loop.create_future())
        connection.transport.write(self._request)  # type: ignore[attr-defined]
        async with asyncio.timeout(TIMEOUT_S):
            await reply.done
        self._idle.append(connection)
        kind = {200: "served", 429: "refused"}.get(reply.status, str(reply.status))
        if kind == "served" and b"data: [DONE]" not in reply.data:
            kind = "broken"
        return Answer(kind, asked_s, reply.first_s, time.monotonic())

    def close(self) -> None:
        """Hang up."""
        for connection in self._idle:
            connection.transport.close()


class NativeClient:
    """InferenceService.Generate on one channel."""

    def __init__(self, channel: aio.Channel, request: bytes) -> None:
        self._call: Callable[..., aio.UnaryStreamCall] = channel.unary_stream(GENERATE)
        self._request = request

    async def ask(self) -> Answer:
        """See Client."""
        asked_s, first_s, last = time.monotonic(), 0.0, b""
        try:
            call = self._call(self._request, timeout=TIMEOUT_S)
            while (message := await call.read()) is not aio.EOF:
                first_s, last = first_s or time.monotonic(), message
        except aio.AioRpcError as error:
            code, end_s = error.code(), time.monotonic()
            refused = code is grpc.StatusCode.RESOURCE_EXHAUSTED
            return Answer("refused" if refused else code.name, asked_s, first_s or end_s, end_s)
        whole = generation_pb2.GenerationEvent.FromString(last).HasField("finished")
        return Answer("served" if whole else "broken", asked_s, first_s, time.monotonic())


@asynccontextmanager
async def rest(address: str, body: bytes) -> AsyncIterator[Client]:
    """A client of the edge."""
    client = RestClient(address, body)
    try:
        yield client
    finally:
        client.close()


@asynccontextmanager
async def native(address: str, request: bytes) -> AsyncIterator[Client]:
    """A client of the edge, or of a gateway."""
    async with open_channel(address) as channel:
        yield NativeClient(channel, request)


async def closed_loop(client: Client, count: int, seconds: float) -> Sequence[Answer]:
    """So many at once, each asking again as soon as it has its answer."""
    end_s = time.monotonic() + seconds
    answers: list[Answer] = []

    async def one() -> None:
        while time.monotonic() < end_s:
            answers.append(await client.ask())

    await asyncio.gather(*(one() for _ in range(count)))
    return answers


async def open_loop(client: Client, per_s: float, seconds: float) -> Sequence[Answer]:
    """Ask so often, whatever becomes of it; ends when all have their answer."""
    begin_s = time.monotonic()
    asked: list[Awaitable[Answer]] = []
    for index in range(int(per_s * seconds)):
        due_s = begin_s + index / per_s - time.monotonic()
        if due_s > 0:
            await asyncio.sleep(due_s)
        asked.append(asyncio.create_task(client.ask()))
    return await asyncio.gather(*asked)


Connect = Callable[[str, bytes], AbstractAsyncContextManager[Client]]
"""`rest` or `native`."""
