"""`hotline up` as a subprocess, on the simulator; used by test_up_*.py."""

import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import httpx
import psutil

READY_LINE = "Model service is ready! Endpoint: /v1/chat/completions"
START_LIMIT_S = 90.0
STOP_LIMIT_S = 60.0


def command(*arguments: str) -> list[str]:
    """The command line of `hotline`."""
    return [sys.executable, "-m", "services.cli", *arguments]


class Up:
    """A running `hotline up`, what it has printed, and its processes."""

    def __init__(self, *arguments: str, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command("up", *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **environment},
        )
        self.lines: list[str] = []
        self._incoming: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._incoming.put(line.rstrip("\n"))
        self._incoming.put(None)

    def until(self, wanted: Callable[[str], bool], limit_s: float = START_LIMIT_S) -> str:
        """Read on to a line; fails with all that was printed where it does not come."""
        deadline_s = time.monotonic() + limit_s
        while True:
            line = self._incoming.get(timeout=max(0.01, deadline_s - time.monotonic()))
            assert line is not None, "it ended:\n" + self.text
            self.lines.append(line)
            if wanted(line):
                return line

    def until_ready(self) -> Self:
        """Wait for the ready line."""
        self.until(lambda line: line == READY_LINE)
        return self

    def until_end(self, limit_s: float = STOP_LIMIT_S) -> int:
        """Wait for the end; returns the exit code."""
        code = self.process.wait(limit_s)
        self._reader.join(5)
        while (line := self._incoming.get(timeout=5)) is not None:
            self.lines.append(line)
        return code

    @property
    def text(self) -> str:
        """Everything read so far."""
        return "\n".join(self.lines)

    @property
    def url(self) -> str:
        """The REST address that it printed."""
        (line,) = [line for line in self.lines if line.startswith("  REST")]
        return line.split()[1].removesuffix("/v1")

    @property
    def folder(self) -> Path:
        """The runtime folder that it printed."""
        (line,) = [line for line in self.lines if line.startswith("  logs")]
        return Path(line.split()[1])

    def descendants(self) -> list[psutil.Process]:
        """Every process below it, supervisord included."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def service(self, name: str) -> psutil.Process:
        """The process of one service, by its name in the stack."""
        mark = "envoy.yaml" if name == "edge" else f"{name}.environment.json"
        (found,) = [
            process
            for process in self.descendants()
            if any(argument.endswith(mark) for argument in process.cmdline())
        ]
        return found

    def healthy(self) -> bool:
        """Whether the whole chain answers."""
        try:
            return httpx.get(f"{self.url}/health/ready", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False


@contextmanager
def running_up(*arguments: str, environment: dict[str, str] | None = None) -> Iterator[Up]:
    """`hotline up` for the block, its runtime folder in one that goes; killed, and all below it, where it must be."""
    with tempfile.TemporaryDirectory(prefix="up-") as folder:
        up = Up(*arguments, environment={"TMPDIR": folder, **(environment or {})})
        yield from _until_stopped(up)


def _until_stopped(up: Up) -> Iterator[Up]:
    try:
        yield up
    finally:
        if up.process.poll() is None:
            below = up.descendants()
            up.process.send_signal(signal.SIGTERM)
            try:
                up.process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                up.process.kill()
                for process in below:
                    if process.is_running():
                        process.kill()
        up._reader.join(5)
        assert up.process.stdout is not None
        up.process.stdout.close()


def assert_gone(processes: list[psutil.Process], limit_s: float = STOP_LIMIT_S) -> None:
    """Every one of these processes ends in time."""
    _, alive = psutil.wait_procs(processes, timeout=limit_s)
    assert not alive, [process.cmdline() for process in alive]


def eventually(condition: Callable[[], bool], limit_s: float) -> None:
    """The condition becomes true in time."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.1)
