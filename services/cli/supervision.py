"""The stack's processes under supervisord, which restarts what dies and stops everything in order."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from services.cli.announcements import KILL_ALL
from services.cli.processes import STOP_ORDER, ProcessPlan

LOG_BYTES = 16 * 1024 * 1024
"""Of one process's log file; one older file is kept beside it."""
QUICK_S = 10
"""A process that ends sooner after its start is restarted with a growing delay, later ones at once."""
RETRIES = 20
"""Quick ends in a row; the delay grows by a second each time. Then `up` gives up."""
TAIL_LINES = 20
_TAIL_BYTES = 64 * 1024
_REAP_S = 5.0

PRIVATE_PREFIX = "HOTLINE_"


@dataclass(frozen=True)
class Change:
    """What became of a process."""

    process: str
    state: str
    """STARTING, RUNNING, BACKOFF (ended soon after its start), EXITED, STOPPING, STOPPED or FATAL (given up)."""
    exit_code: int | None = None
    """Of EXITED and STOPPED; -1: by a signal."""


class Supervisor:
    """One supervisord as a child of this process. It stops when this process ends, however it ends."""

    def __init__(
        self, plans: Sequence[ProcessPlan], folder: Path, process: asyncio.subprocess.Process
    ) -> None:
        self._plans, self._folder, self._process = plans, folder, process

    @classmethod
    async def start(cls, plans: Sequence[ProcessPlan], folder: Path) -> Self:
        """Write the files and start everything. Call it on the main thread: PDEATHSIG follows the thread."""
        for plan in plans:
            plan.environment_file(folder).write_text(json.dumps(plan.environment))
        file = folder / "supervisord.conf"
        file.write_text(configuration(plans, folder, os.getpid()), encoding="utf-8")
        command = [sys.executable, "-m", "supervisor.supervisord", "--configuration", str(file)]
        with (folder / "supervisord.err").open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=errors,
                env=clean_environment(os.environ.items()),
                start_new_session=True,  # Ctrl-C in the terminal is for `up` alone
            )
        return cls(plans, folder, process)

    async def changes(self) -> AsyncGenerator[Change, None]:
        """Everything that happens to the processes, until supervisord ends."""
        if self._process.stdout is None:
            raise RuntimeError("supervisord was started without a pipe")
        async for line in self._process.stdout:
            told = json.loads(line)
            yield Change(told["process"], told["state"], told["exit_code"])

    @property
    def stop_limit_s(self) -> float:
        """How long an orderly stop may take."""
        longest = {plan.role: plan.stop_limit_s for plan in self._plans}
        return sum(longest.values()) + _REAP_S

    def ask_to_stop(self) -> None:
        """Begin the orderly stop; `changes` tells how it goes, and ends with it."""
        self._signal(signal.SIGTERM)

    def kill_all(self) -> None:
        """Kill what still runs; only after `ask_to_stop`."""
        self._signal(KILL_ALL)

    async def wait(self) -> None:
        """Wait for supervisord's end; kills it where it does not end."""
        try:
            await asyncio.wait_for(self._process.wait(), _REAP_S)
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self._process.wait()

    def own_errors(self) -> list[str]:
        """What supervisord itself complained about."""
        return tail(self._folder / "supervisord.err") or tail(self._folder / "supervisord.log")

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)


def clean_environment(variables: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The user's environment without settings of ours: what a stack does is in its configuration alone."""
    return {name: value for name, value in variables if not name.startswith(PRIVATE_PREFIX)}


def configuration(plans: Sequence[ProcessPlan], folder: Path, parent_pid: int) -> str:
    """supervisord.conf. Groups stop one after another, the highest priority first."""
    head = f"""\
[supervisord]
nodaemon = true
silent = true
umask = 077
directory = {_value(folder)}
logfile = {_value(folder / "supervisord.log")}
pidfile = {_value(folder / "supervisord.pid")}
childlogdir = {_value(folder)}

[unix_http_server]
file = {_value(folder / "supervisor.sock")}
chmod = 0700

[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface

[rpcinterface:hotline]
supervisor.rpcinterface_factory = services.cli.announcements:create
parent_pid = {parent_pid}

[supervisorctl]
serverurl = unix://{_value(folder / "supervisor.sock")}
"""
    sections = [head]
    for place, role in enumerate(reversed(STOP_ORDER), start=1):
        members = [plan for plan in plans if plan.role == role]
        sections += [_program(plan, folder) for plan in members]
        names = ",".join(plan.name for plan in members)
        sections.append(f"[group:{role}s]\nprograms = {names}\npriority = {place * 100}\n")
    return "\n".join(sections)


def _program(plan: ProcessPlan, folder: Path) -> str:
    command = " ".join(f'"{_value(part)}"' for part in plan.command(folder))
    return f"""\
[program:{plan.name}]
command = {command}
autorestart = true
startsecs = {QUICK_S}
startretries = {RETRIES}
stopsignal = TERM
stopwaitsecs = {round(plan.stop_limit_s)}
killasgroup = true
redirect_stderr = true
stdout_logfile = {_value(plan.log_file(folder))}
stdout_logfile_maxbytes = {LOG_BYTES}
stdout_logfile_backups = 1
"""


def _value(text: str | Path) -> str:
    """For supervisord.conf, where % begins an expansion."""
    return str(text).replace("%", "%%")


def tail(file: Path) -> list[str]:
    """The last lines of a log; empty where there is none."""
    try:
        with file.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = log.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    return list(deque(text.splitlines(), maxlen=TAIL_LINES))
