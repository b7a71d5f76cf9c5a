"""The metrics over HTTP, for Prometheus: GET /metrics on an address of its own, loopback unless told otherwise.

It runs on the service's loop with a bound on everything a peer could draw out. The values are read on the loop, so a
gauge's callback may look at whatever lives there; the text is made of them in a thread.
"""

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from services.runtime.logs import get_logger

MAX_HEAD_BYTES = 8192
MAX_CONNECTIONS = 16
"""At once; a further one is closed unread."""
TIMEOUT_S = 5.0
"""For a request to arrive, and for its answer to leave."""
_PLAIN = "text/plain; charset=utf-8"
_log = get_logger()


class MetricsServer:
    """Answers scrapes of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="metrics")
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self, address: str) -> None:
        """Listen on `host:port` (port 0: any free one; no host: loopback). Raises OSError where it is taken."""
        host, _, port = address.rpartition(":")
        self._server = await asyncio.start_server(
            self._connected, host.strip("[]") or "127.0.0.1", int(port), limit=MAX_HEAD_BYTES
        )
        self.port = self._server.sockets[0].getsockname()[1]
        _log.info("metrics", address=address, port=self.port)

    async def close(self) -> None:
        """Listen no more, end what is open. Idempotent; never waits for a peer."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.close()
            return
        task = asyncio.create_task(self._serve(reader, writer), name="metrics connection")
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                writer.write(await self._answer(reader))
                await writer.drain()
        except (OSError, EOFError, TimeoutError):
            return  # the peer has left, or is too slow
        # The top of the task: a metric that cannot be read must be heard of, and harm nothing else.
        except Exception:  # noqa: BLE001
            _log.exception("no metrics")
            writer.write(_plain(HTTPStatus.INTERNAL_SERVER_ERROR))
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        first = head.decode("latin-1").partition("\r\n")[0]
        method, _, rest = first.partition(" ")
        target, _, version = rest.partition(" ")
        if not version.startswith("HTTP/1."):
            return _plain(HTTPStatus.BAD_REQUEST)
        if target.partition("?")[0] != "/metrics":
            return _plain(HTTPStatus.NOT_FOUND)
        if method not in ("GET", "HEAD"):
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED, "Allow: GET, HEAD\r\n")
        values = _Values(self._registry)
        loop = asyncio.get_running_loop()
        body = await loop.run_in_executor(self._pool, generate_latest, values)
        answer = _head(HTTPStatus.OK, CONTENT_TYPE_PLAIN_0_0_4, len(body))
        return answer if method == "HEAD" else answer + body


class _Values(Collector):
    """What a registry holds at this moment."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._families = list(registry.collect())

    def collect(self) -> Iterable[Metric]:
        """See Collector."""
        return self._families


def _plain(status: HTTPStatus, headers: str = "") -> bytes:
    body = f"{status.phrase}\n".encode()
    return _head(status, _PLAIN, len(body), headers) + body


def _head(status: HTTPStatus, content_type: str, length: int, headers: str = "") -> bytes:
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {length}\r\n{headers}Connection: close\r\n\r\n"
    ).encode()
