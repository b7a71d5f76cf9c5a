"""What the supervisor tells of its processes, and that nobody waits for one that is stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from up_process import eventually

from services.cli.processes import ProcessPlan
from services.cli.supervised import ask_supervisor, tree_rss_bytes
from services.cli.supervision import configuration


class Sleeper(ProcessPlan):
    """A process that does nothing, in the place of a worker."""

    def command(self, folder: Path) -> list[str]:
        return [sys.executable, "-c", "import time; time.sleep(100)"]


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    plans = [
        Sleeper(f"{role}-0", role, "", {}, 1.0)
        for role in ("worker", "tokenizer", "gateway", "edge")
    ]
    file = tmp_path / "supervisord.conf"
    file.write_text(configuration(plans, tmp_path, os.getpid()))
    command = [sys.executable, "-m", "supervisor.supervisord", "--configuration", str(file)]
    with (tmp_path / "output").open("wb") as output, (tmp_path / "errors").open("wb") as errors:
        process = subprocess.Popen(command, stdout=output, stderr=errors)
    yield process
    process.send_signal(signal.SIGCONT)
    process.terminate()
    process.wait(20)


def test_pids_ages_restarts_and_memory_are_told(
    supervisor: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    eventually(lambda: len(ask_supervisor(tmp_path, 1.0)) == 4, 20)
    before = ask_supervisor(tmp_path, 1.0)["worker-0"]
    assert psutil.Process(before.pid).ppid() == supervisor.pid
    assert (before.restart_count, before.rss_bytes > 1_000_000) == (0, True)
    assert 0 <= before.uptime_s < 20
    psutil.Process(before.pid).kill()

    def is_back() -> bool:
        told = ask_supervisor(tmp_path, 1.0).get("worker-0")
        return told is not None and told.pid != before.pid

    eventually(is_back, 20)
    told = ask_supervisor(tmp_path, 1.0)
    assert told["worker-0"].restart_count == 1
    assert told["gateway-0"].restart_count == 0


def test_a_stopped_supervisor_is_not_waited_for(
    supervisor: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    eventually(lambda: len(ask_supervisor(tmp_path, 1.0)) == 4, 20)
    supervisor.send_signal(signal.SIGSTOP)
    begin_s = time.monotonic()
    assert ask_supervisor(tmp_path, 0.3) == {}
    assert time.monotonic() - begin_s < 3


def test_a_caller_that_left_too_early_puts_nothing_among_the_announcements(
    supervisor: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    eventually(lambda: len(ask_supervisor(tmp_path, 1.0)) == 4, 20)
    supervisor.send_signal(signal.SIGSTOP)
    ask_supervisor(tmp_path, 0.3)
    supervisor.send_signal(signal.SIGCONT)
    # supervisord complains in a print, which `hotline up` would take for an announcement.
    eventually(lambda: b"BrokenPipe" in (tmp_path / "errors").read_bytes(), 20)
    for line in (tmp_path / "output").read_text().splitlines():
        assert json.loads(line)["process"].endswith("-0")


def test_without_a_supervisor_nothing_is_known(tmp_path: Path) -> None:
    assert ask_supervisor(tmp_path, 0.3) == {}


def test_memory_counts_what_is_below_too() -> None:
    own = psutil.Process().memory_info().rss
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"]) as child:
        eventually(lambda: psutil.Process(child.pid).memory_info().rss > 5_000_000, 10)
        assert tree_rss_bytes(os.getpid()) > own * 0.9 + 4_000_000
        child.kill()


def test_a_process_that_has_gone_takes_no_memory() -> None:
    assert tree_rss_bytes(2**22 + 1) == 0
