"""One running stack for all end-to-end tests: `hotline up` with the default configuration on a free port."""

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from hotline.v1 import worker_pb2, worker_pb2_grpc

READY = "Model service is ready! Endpoint: /v1/chat/completions"
START_LIMIT_S = 200


@dataclass(frozen=True)
class Stack:
    """Where a running stack can be reached."""

    port: int
    folder: Path
    """Its runtime folder: sockets and logs."""
    process: "subprocess.Popen[str]"

    @property
    def address(self) -> str:
        """The edge, for gRPC."""
        return f"127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """The edge, for OpenAI clients."""
        return f"http://127.0.0.1:{self.port}/v1"

    def socket(self, name: str) -> str:
        """The unix socket of one process, as a gRPC address."""
        return f"unix:{self.folder / name}.sock"

    def worker_status(self) -> worker_pb2.GetStatusResponse:
        """What worker-0 says of itself."""
        with grpc.insecure_channel(self.socket("worker-0")) as channel:
            stub = worker_pb2_grpc.WorkerServiceStub(channel)
            return stub.GetStatus(worker_pb2.GetStatusRequest(), timeout=5)

    def logged(self, name: str, *texts: str, limit_s: float = 10) -> list[str]:
        """The lines of a process's log that hold all the texts; the supervisor writes them a little later than they happen."""
        end_s = time.monotonic() + limit_s
        while True:
            log = (self.folder / f"{name}.log").read_text(encoding="utf-8")
            lines = [line for line in log.splitlines() if all(text in line for text in texts)]
            if lines or time.monotonic() > end_s:
                return lines
            time.sleep(0.05)

    def idle_within(self, limit_s: float) -> bool:
        """Whether the worker has no generation left, now or within the limit."""
        end_s = time.monotonic() + limit_s
        while time.monotonic() < end_s:
            status = self.worker_status()
            if status.running == status.waiting == 0:
                return True
            time.sleep(0.02)
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _folder(below: Path) -> Path:
    [found] = {path.parent for path in below.rglob("worker-0.sock")}
    return found


@pytest.fixture(scope="package")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Generator[Stack, None, None]:
    """Starts in a quarter of a minute, and must leave nothing behind."""
    temporary = tmp_path_factory.mktemp("up")
    port = _free_port()
    command = [Path(sys.executable).with_name("hotline"), "up", "--port", str(port)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(temporary), "HOME": str(temporary)},
    )
    lines: list[str] = []
    ready = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if READY in line:
                ready.set()
        ready.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        assert ready.wait(START_LIMIT_S), "".join(lines)
        assert any(READY in line for line in lines), "".join(lines)
        yield Stack(port, _folder(temporary), process)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            code = process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        reader.join(5)
        assert process.stdout is not None
        process.stdout.close()
    assert code == 0, "".join(lines)
    assert not list(temporary.rglob("*.sock"))
