"""What `hotline up` writes about itself in its runtime folder, and how `hotline status` finds it."""

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.cli.processes import ProcessPlan

FOLDER_PREFIX = "hotline-"
FILE_NAME = "stack.json"


@dataclass(frozen=True)
class Listed:
    """One process of a running stack."""

    name: str
    role: str
    address: str
    metrics_address: str
    """`host:port`; empty: none."""
    admin_address: str = ""
    """Of a gateway, where AdminService is; empty: none."""


@dataclass(frozen=True)
class RunningStack:
    """A stack whose `hotline up` lives."""

    folder: Path
    pid: int
    processes: tuple[Listed, ...]


def write(folder: Path, plans: Sequence[ProcessPlan]) -> None:
    """Tell who runs here; the folder is this user's alone."""
    document = {
        "pid": os.getpid(),
        "start_ticks": _start_ticks(os.getpid()),
        "processes": [
            {
                "name": plan.name,
                "role": plan.role,
                "address": plan.address,
                "metrics_address": plan.metrics_address,
                "admin_address": plan.admin_address,
            }
            for plan in plans
        ],
    }
    (folder / FILE_NAME).write_text(json.dumps(document), encoding="utf-8")


def find() -> list[RunningStack]:
    """This user's running stacks, the oldest first. What dead ones left behind is passed over."""
    folders = Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*")
    found = [stack for folder in sorted(folders) if (stack := read(folder)) is not None]
    return sorted(found, key=lambda stack: _start_ticks(stack.pid) or 0)


def read(folder: Path) -> RunningStack | None:
    """The stack of a runtime folder; None where there is none, it has ended, or the folder is another user's."""
    try:
        # Anybody may make a folder of this name where temporary files are: only our own, closed ones are believed.
        status = folder.lstat()
        if status.st_uid != os.getuid() or status.st_mode & 0o077 or not folder.is_dir():
            return None
        document = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
        pid = int(document["pid"])
        processes = tuple(_listed(entry) for entry in document["processes"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    ticks = _start_ticks(pid)
    if ticks is None or ticks != document.get("start_ticks"):
        return None
    return RunningStack(folder, pid, processes)


def _listed(entry: dict[str, Any]) -> Listed:
    return Listed(
        *(entry["name"], entry["role"], entry["address"]),
        *(entry["metrics_address"], entry["admin_address"]),
    )


def _start_ticks(pid: int) -> int | None:
    """When a process began, in clock ticks since boot: a pid that was given anew differs. None: no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[19])
