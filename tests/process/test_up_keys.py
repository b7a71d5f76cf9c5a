"""`hotline up` with API keys: SIGHUP passes through to every gateway, a terminal that closes stops it."""

import fcntl
import os
import pty
import signal
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from gateway_process import key_command
from status_of_up import processes
from up_process import Up, assert_gone, command, eventually, running_up

ROOT = Path(__file__).parents[2]
CONFIGURATION = f"""
model: {{path: {ROOT}/deploy/models/autoglm-phone-tiny, name: tiny}}
gateway: {{keys_file: keys.json, count: 2}}
worker: {{engine: sim, sim_profile: fast}}
start_timeout_s: 120
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("stack")
    (made / "stack.yaml").write_text(CONFIGURATION)
    return made


@pytest.fixture(scope="module")
def key(folder: Path) -> str:
    return key_command("add", "first", "--config", str(folder / "stack.yaml"))


@pytest.fixture(scope="module")
def up(folder: Path, key: str) -> Iterator[Up]:
    with running_up("--config", str(folder / "stack.yaml"), "--port", "0") as stack:
        yield stack.until_ready()


def status(up: Up, key: str | None) -> int:
    sent = {} if key is None else {"authorization": f"Bearer {key}"}
    return httpx.get(f"{up.url}/v1/models", headers=sent, timeout=20).status_code


@pytest.mark.slow
def test_it_asks_for_a_key_and_says_so_of_health_alone_not(up: Up, key: str) -> None:
    assert [status(up, sent) for sent in (None, "EMPTY", key)] == [401, 401, 200]
    assert up.healthy()
    (shown,) = [line for line in up.lines if line.startswith("  keys")]
    assert shown.endswith("/keys.json")


@pytest.mark.slow
def test_status_asks_gateways_where_operators_come(up: Up) -> None:
    gateways = [one for one in processes(up) if one["role"] == "gateway"]
    assert [one["state"] for one in gateways] == ["SERVING", "SERVING"]
    assert all(one["admin_address"].endswith(".sock") for one in gateways)


@pytest.mark.slow
def test_sighup_is_passed_on_to_every_gateway(up: Up, key: str, folder: Path) -> None:
    second = key_command("add", "second", "--config", str(folder / "stack.yaml"))
    assert status(up, second) == 401
    up.process.send_signal(signal.SIGHUP)
    up.until(lambda line: line == "reload: gateways that read their keys again: 2", 20)
    # By both: the edge takes turns.
    eventually(lambda: [status(up, second) for _ in range(10)] == [200] * 10, 20)
    assert status(up, key) == 200
    assert up.process.poll() is None


@pytest.mark.slow
def test_a_keys_file_that_cannot_be_used_is_refused_before_anything_starts(folder: Path) -> None:
    other = folder / "other.yaml"
    other.write_text(CONFIGURATION.replace("keys.json", "no-keys.json"))
    refused = ("error: gateway: keys_file:", 1)
    failed = ("check keys: failed: gateway: keys_file:", 2)  # beside what else it checks
    for arguments, (said, code) in ((["up", "--port", "0"], refused), (["check"], failed)):
        done = subprocess.run(
            command(*arguments, "--config", str(other)),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        told = done.stdout + done.stderr
        assert done.returncode == code
        assert said in told
        assert "hotline key add NAME --file" in told


@pytest.mark.slow
def test_a_terminal_that_closes_stops_it_and_leaves_nothing(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        command("up", "--config", "sim", "--port", "0"),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    os.close(slave)
    shown = b""
    while b"starting" not in shown:
        shown += os.read(master, 4096)
    below = psutil.Process(process.pid).children(recursive=True)
    assert below
    os.close(master)
    assert process.wait(60) == 0
    assert_gone(below, 10)
