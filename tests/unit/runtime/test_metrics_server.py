"""GET /metrics of a real process: plain answers to everything, bounded, in nobody's way."""

import asyncio
import threading
import time

import httpx
import pytest
from grpc import aio
from prometheus_client import CollectorRegistry, Gauge
from pydantic import ValidationError

from services.runtime import metrics_server
from services.runtime.lifecycle import Process, Service, State
from services.runtime.metrics_server import MAX_CONNECTIONS, MAX_HEAD_BYTES, MetricsServer
from services.runtime.settings import ServiceSettings


class Nothing(Service):
    """Serves no service of its own."""

    def register(self, server: aio.Server) -> list[str]:
        return []

    async def warm(self) -> None:
        return

    async def close(self) -> None:
        return


def process(metrics_address: str = "127.0.0.1:0") -> Process:
    settings = ServiceSettings(metrics_address=metrics_address, drain_notice_s=0, drain_grace_s=0)
    return Process(Nothing(), settings)


@pytest.fixture
async def running():
    started = process()
    await started.start()
    yield started
    await started.stop()


def port_of(running: Process) -> int:
    return running.metrics_port


@pytest.fixture
async def client(running):
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port_of(running)}") as opened:
        yield opened


async def raw(port: int, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return answer


async def test_the_metrics_are_text_for_prometheus(client):
    answer = await client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    for name in ("process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"):
        assert f"\n{name} " in answer.text


async def test_a_head_request_gets_the_head_alone(client):
    answer = await client.head("/metrics")
    assert answer.status_code == 200
    assert int(answer.headers["content-length"]) > 1000


async def test_a_query_is_ignored(client):
    assert (await client.get("/metrics?name[]=x")).status_code == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", 404, id="another path"),
        pytest.param(b"GET /metrics/x HTTP/1.1\r\n\r\n", 404, id="below"),
        pytest.param(b"GET /../metrics HTTP/1.1\r\n\r\n", 404, id="dots"),
        pytest.param(b"POST /metrics HTTP/1.1\r\n\r\n", 405, id="another method"),
        pytest.param(b"GET /metrics\r\n\r\n", 400, id="no version"),
        pytest.param(b"\x16\x03\x01\xff\xfe\r\n\r\n", 400, id="no HTTP"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, id="HTTP/2"),
        pytest.param(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * MAX_HEAD_BYTES * 2, 431, id="long"),
    ],
)
async def test_anything_else_is_refused_in_a_word(running, sent, status):
    answer = await raw(port_of(running), sent)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"Traceback" not in answer
    if status == 405:
        assert b"\r\nAllow: GET, HEAD\r\n" in answer


async def test_a_silent_peer_is_left_after_a_while(running, monkeypatch):
    monkeypatch.setattr(metrics_server, "TIMEOUT_S", 0.05)
    assert await raw(port_of(running), b"GET /metrics HTT") == b""


async def test_one_connection_too_many_is_closed_and_the_others_go_on(running):
    port = port_of(running)
    open_ones = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_CONNECTIONS)]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await reader.read() == b""
    writer.close()
    for reader, writer in open_ones:
        writer.write(b"HEAD /metrics HTTP/1.1\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        writer.close()
    assert (await raw(port, b"HEAD /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_a_metric_that_cannot_be_read_is_a_500_without_internals():
    registry = CollectorRegistry()

    def broken() -> float:
        raise ValueError("a secret")

    Gauge("broken", "Broken", registry=registry).set_function(broken)
    server = MetricsServer(registry)
    await server.start("127.0.0.1:0")
    answer = await raw(server.port, b"GET /metrics HTTP/1.1\r\n\r\n")
    await server.close()
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"secret" not in answer


async def test_a_stop_does_not_wait_for_open_connections(running):
    port = port_of(running)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /met")
    await writer.drain()
    before_s = time.monotonic()
    await running.stop()
    assert time.monotonic() - before_s < 2
    assert running.state is State.STOPPED
    assert await reader.read() == b""
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_gauge_s_callback_runs_where_its_service_lives_on_the_loop():
    registry = CollectorRegistry()
    Gauge("thread", "Thread", registry=registry).set_function(threading.get_native_id)
    server = MetricsServer(registry)
    await server.start(":0")
    answer = await raw(server.port, b"GET /metrics HTTP/1.1\r\n\r\n")
    await server.close()
    assert float(answer.rpartition(b"thread ")[2]) == threading.get_native_id()


async def test_without_an_address_nothing_listens():
    started = process("")
    await started.start()
    assert port_of(started) == 0
    await started.stop()


async def test_a_taken_address_ends_the_start(running):
    second = process(f"127.0.0.1:{port_of(running)}")
    with pytest.raises(OSError, match="address"):
        await second.start()
    await second.stop()


@pytest.mark.parametrize("address", ["9100", "localhost", "http://x:1", "unix:/tmp/x", "x:port"])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(ValidationError, match="metrics_address"):
        ServiceSettings(metrics_address=address)
