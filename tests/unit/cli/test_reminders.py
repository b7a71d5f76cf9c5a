"""A process that has not heard that it is to stop is told again."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from supervisor.states import ProcessStates

from services.cli.processes import STOP_ORDER, ProcessPlan
from services.cli.reminders import COUNT, INTERVAL_S, Reminders
from services.cli.supervision import Supervisor

HARD_OF_HEARING = """
import pathlib, signal, sys, time
heard = 0
def hear(*_):
    global heard
    heard += 1
    if heard == int(sys.argv[1]):
        sys.exit()
signal.signal(signal.SIGTERM, hear)
pathlib.Path(sys.argv[2]).touch()
while True:
    time.sleep(60)
"""


class Script(ProcessPlan):
    """Ends at a SIGTERM: the gateway at the second, the others at the first."""

    def command(self, folder: Path) -> list[str]:
        number = "2" if self.name == "gateway" else "1"
        ready = str(folder / f"{self.name}.ready")
        return [sys.executable, str(folder / "script.py"), number, ready]


async def test_a_process_that_lost_its_sigterm_stops_long_before_its_limit(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(HARD_OF_HEARING)
    plans = [Script(role, role, f"unix:/x/{role}", {}, 40.0) for role in STOP_ORDER]
    supervisor = await Supervisor.start(plans, tmp_path)
    stopped = []
    async with asyncio.timeout(30), aclosing(supervisor.changes()) as changes:
        for plan in plans:
            while not (tmp_path / f"{plan.name}.ready").exists():
                await asyncio.sleep(0.05)
        start_s = time.monotonic()
        supervisor.ask_to_stop()
        async for change in changes:
            if change.state == "STOPPED":
                stopped.append(change.process)
        await supervisor.wait()
    assert stopped == [*STOP_ORDER]
    assert time.monotonic() - start_s < 20


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """What would have been sent to whom."""
    signals: list[tuple[int, int]] = []
    monkeypatch.setattr("os.kill", lambda pid, number: signals.append((pid, number)))
    old = signal.signal(signal.SIGALRM, lambda *_: None)
    yield signals
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, old)


def stack(**states: int) -> tuple[Any, list[Any]]:
    members = {
        name: SimpleNamespace(pid=pid, state=state)
        for pid, (name, state) in enumerate(states.items(), start=11)
    }
    group = SimpleNamespace(processes=members)
    return SimpleNamespace(process_groups={"all": group}), [*members.values()]


def test_only_who_is_stopping_is_reminded(sent: list[tuple[int, int]]) -> None:
    supervisord, (stopping, other) = stack(a=ProcessStates.STOPPING, b=ProcessStates.RUNNING)
    reminders = Reminders(supervisord)
    reminders.begin(SimpleNamespace(process=stopping))
    assert signal.getitimer(signal.ITIMER_REAL)[1] == INTERVAL_S
    reminders.send()
    assert sent == [(stopping.pid, signal.SIGTERM)]
    assert other.pid != stopping.pid
    stopping.state, stopping.pid = ProcessStates.STOPPED, 0
    reminders.send()
    assert len(sent) == 1
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_nobody_is_reminded_for_ever(sent: list[tuple[int, int]]) -> None:
    supervisord, (deaf,) = stack(a=ProcessStates.STOPPING)
    reminders = Reminders(supervisord)
    reminders.begin(SimpleNamespace(process=deaf))
    for _ in range(COUNT + 3):
        reminders.send()
    reminders.begin(SimpleNamespace(process=deaf))  # at its kill
    reminders.send()
    assert sent == [(deaf.pid, signal.SIGTERM)] * COUNT
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_one_that_ended_just_now_is_no_error(
    sent: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(pid: int, number: int) -> None:
        raise ProcessLookupError(pid)

    monkeypatch.setattr(os, "kill", gone)
    supervisord, (ended,) = stack(a=ProcessStates.STOPPING)
    reminders = Reminders(supervisord)
    reminders.begin(SimpleNamespace(process=ended))
    reminders.send()
