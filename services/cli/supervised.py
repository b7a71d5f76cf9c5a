"""What the supervisor and the kernel know of a stack's processes: pids, ages, restarts, memory."""

import http.client
import os
import socket
import xmlrpc.client
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor.xmlrpc import SupervisorTransport

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MOST_PROCESSES = 256
"""Of one tree that are looked at."""


@dataclass(frozen=True)
class Supervised:
    """One process that runs."""

    pid: int
    uptime_s: int
    restart_count: int
    """Times that it was started again since the stack began."""
    rss_bytes: int
    """Of it and all processes below it, such as an engine's; shared pages count in each."""


def ask_supervisor(folder: Path, timeout_s: float) -> dict[str, Supervised]:
    """By name, those that run; empty where the supervisor does not answer.

    Args:
        folder: the stack's runtime folder.
        timeout_s: for each of the two calls.
    """
    with closing(_Transport(folder / "supervisor.sock", timeout_s)) as transport:
        server = xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport)
        try:
            found: Any = server.supervisor.getAllProcessInfo()
            starts: Any = server.hotline.start_counts()
        except (OSError, xmlrpc.client.Error, http.client.HTTPException):
            return {}
    return {
        entry["name"]: Supervised(
            entry["pid"],
            entry["now"] - entry["start"],
            max(starts.get(entry["name"], 1) - 1, 0),
            tree_rss_bytes(entry["pid"]),
        )
        for entry in found
        if entry["pid"]
    }


def signal_group(folder: Path, group: str, name: str, timeout_s: float) -> int:
    """Send a signal to every process of a group that runs; returns to how many.

    Args:
        folder: the stack's runtime folder.
        group: such as `gateways`.
        name: of the signal, such as `HUP`.
        timeout_s: longest wait for the supervisor.

    Raises:
        OSError: the supervisor does not answer.
    """
    with closing(_Transport(folder / "supervisor.sock", timeout_s)) as transport:
        server = xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport)
        try:
            told: Any = server.supervisor.signalProcessGroup(group, name)
        except (xmlrpc.client.Error, http.client.HTTPException) as error:
            raise OSError(f"the process supervisor: {error}") from error
    return sum(entry["description"] == "OK" for entry in told)


def tree_rss_bytes(pid: int) -> int:
    """Resident memory of a process and of all below it; 0 where it has gone."""
    total, left = 0, [pid]
    for _ in range(_MOST_PROCESSES):
        if not left:
            break
        one = Path("/proc") / str(left.pop())
        try:
            total += int((one / "statm").read_text().split()[1]) * _PAGE_BYTES
            for children in one.glob("task/*/children"):
                left += map(int, children.read_text().split())
        except (OSError, ValueError):
            continue  # it ended meanwhile
    return total


class _Transport(SupervisorTransport):  # type: ignore[misc]  # supervisor has no types
    """Its own waits for ever on a supervisor that is stopped."""

    def __init__(self, file: Path, timeout_s: float) -> None:
        super().__init__(serverurl=f"unix://{file}")
        self._get_connection = lambda: _Connection(file, timeout_s)


class _Connection(http.client.HTTPConnection):
    def __init__(self, file: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._file = str(file)

    def connect(self) -> None:
        """Over the unix socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._file)
