"""`hotline up` on the simulator: it starts, restarts what dies, and leaves nothing behind."""

import os
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator

import psutil
import pytest
from up_process import (
    READY_LINE,
    Up,
    assert_gone,
    command,
    eventually,
    running_up,
)

pytestmark = pytest.mark.slow

SIM = ("--config", "sim", "--port", "0")


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    """One stack for the tests that leave it healthy."""
    with running_up(*SIM, environment={"HOTLINE_WORKER_MAX_RUNNING": "nonsense"}) as stack:
        yield stack.until_ready()


def test_it_says_that_it_is_ready_only_when_the_chain_answers(up: Up) -> None:
    assert up.lines[-1] == READY_LINE
    assert up.healthy()


def test_it_shows_the_seconds_of_each_change(up: Up) -> None:
    for process in ("worker-0", "tokenizer-0", "gateway", "edge"):
        shown = [line for line in up.lines if f"] {process} " in line]
        assert any(line.endswith("starting") for line in shown)
        assert any(line.endswith("ready") for line in shown)


def test_settings_in_the_users_environment_do_not_leak_in(up: Up) -> None:
    assert "HOTLINE_WORKER_MAX_RUNNING is ignored" in up.text
    for process in up.descendants():
        assert process.environ().get("HOTLINE_WORKER_MAX_RUNNING") is None


def test_its_folder_and_files_are_private(up: Up) -> None:
    assert stat.S_IMODE(up.folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["worker-0", "tokenizer-0", "gateway", "edge"])
def test_a_killed_process_is_reported_restarted_and_ready_again(up: Up, name: str) -> None:
    before = up.service(name)
    before.kill()
    up.until(lambda line: f"] {name} " in line and "ended" in line, 10)
    up.until(lambda line: f"] {name} " in line and "starting" in line, 30)
    up.until(lambda line: f"] {name} " in line and line.endswith("ready"), 60)
    eventually(up.healthy, 60)
    assert up.service(name).pid != before.pid


def test_sigterm_stops_in_order_and_leaves_nothing() -> None:
    with running_up(*SIM) as up:
        up.until_ready()
        below, folder = up.descendants(), up.folder
        up.process.send_signal(signal.SIGTERM)
        assert up.until_end() == 0
    assert_gone(below, 1)
    stopped = [line.split()[-2] for line in up.lines if line.endswith("stopped")]
    assert stopped == ["gateway", "edge", "tokenizer-0", "worker-0"]
    assert not folder.exists()


def test_sigint_while_it_starts_stops_it() -> None:
    with running_up(*SIM) as up:
        up.until(lambda line: "starting" in line)
        below = up.descendants()
        up.process.send_signal(signal.SIGINT)
        assert up.until_end() == 0
    assert_gone(below, 1)


def test_a_second_signal_kills_what_does_not_stop() -> None:
    with running_up(*SIM) as up:
        up.until_ready()
        below = up.descendants()
        up.service("worker-0").suspend()
        up.process.send_signal(signal.SIGINT)
        up.until(lambda line: "worker-0" in line and "stopping" in line, 30)
        up.process.send_signal(signal.SIGINT)
        assert up.until_end(10) == 0
    assert_gone(below, 1)


def test_nothing_outlives_a_killed_up() -> None:
    with running_up(*SIM) as up:
        up.until_ready()
        below = up.descendants()
        up.process.kill()
        assert_gone(below)


def test_nothing_outlives_an_up_that_is_killed_while_it_starts() -> None:
    with running_up(*SIM) as up:
        up.until(lambda line: "gateway" in line and "starting" in line)
        below = up.descendants()
        up.process.kill()
        assert_gone(below)


def test_it_ends_with_an_error_when_its_supervisor_is_killed() -> None:
    with running_up(*SIM) as up:
        up.until_ready()
        below = up.descendants()
        (supervisor,) = [
            process for process in below if "supervisor.supervisord" in process.cmdline()
        ]
        supervisor.kill()
        assert up.until_end() == 1
    assert "the process supervisor ended" in up.text
    assert_gone(below)


def test_two_stacks_on_two_ports_do_not_meet(up: Up) -> None:
    with running_up(*SIM) as other:
        other.until_ready()
        assert other.url != up.url
        assert other.folder != up.folder
        assert up.healthy()
        assert other.healthy()


def test_the_banner_says_what_the_engine_is_and_that_the_logs_go(up: Up) -> None:
    assert "  engine  sim (a simulator: its words mean nothing)" in up.lines
    assert f"  logs    {up.folder} (a clean stop removes it)" in up.lines
    assert "  keys    none are asked for" in up.lines


@pytest.mark.parametrize("delay_s", [0.0, 0.1, 0.3])
def test_sigint_just_after_a_process_is_started_does_not_wait_for_its_stop_limit(
    delay_s: float,
) -> None:
    with running_up(*SIM) as up:
        up.until(lambda line: "starting" in line)
        time.sleep(delay_s)
        start_s = time.monotonic()
        up.process.send_signal(signal.SIGINT)
        assert up.until_end() == 0
        assert time.monotonic() - start_s < 20  # a stop limit is 30 s


def test_it_stops_quietly_where_nobody_reads_its_output() -> None:
    with tempfile.TemporaryDirectory(prefix="up-") as folder:
        up = subprocess.Popen(
            command("up", *SIM),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": folder},
        )
        assert up.stdout is not None
        assert "starting" in up.stdout.readline()
        below = psutil.Process(up.pid).children(recursive=True)
        up.stdout.close()
        try:
            _, error = up.communicate(timeout=40)
        finally:
            up.kill()
    assert (up.returncode, error) == (141, "")
    assert_gone(below, 1)
