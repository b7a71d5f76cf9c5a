"""A real gateway process and `hotline key`: starts, reloads, refusals, and what the log never holds."""

import socket
from pathlib import Path

import grpc
import pytest
from gateway_process import LIMIT_S, GatewayProcess, key_command, running_gateway
from hotline.v1 import admin_pb2, admin_pb2_grpc

READ, NOT_READ = '"event": "keys read"', "the old ones stay in force"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def add(file: Path, name: str) -> str:
    return key_command("add", name, "--file", str(file))


def test_sighup_takes_new_keys_and_revokes_old_ones(tmp_path: Path, file: Path) -> None:
    first = add(file, "first")
    with running_gateway(tmp_path, keys_file=file) as gateway:
        assert [gateway.code(key) for key in (first, None, "EMPTY")] == [
            "OK",
            "UNAUTHENTICATED",
            "UNAUTHENTICATED",
        ]
        second = add(file, "second")
        key_command("revoke", "first", "--file", str(file))
        assert [gateway.code(key) for key in (first, second)] == ["OK", "UNAUTHENTICATED"]
        gateway.hang_up()
        gateway.until_logged(READ, 2)
        assert [gateway.code(key) for key in (first, second)] == ["UNAUTHENTICATED", "OK"]


def test_a_broken_file_keeps_the_old_keys_and_the_log_says_why(tmp_path: Path, file: Path) -> None:
    key = add(file, "first")
    good = file.read_text()
    with running_gateway(tmp_path, keys_file=file) as gateway:
        for count, (text, why) in enumerate(
            [("{", "Invalid JSON"), (good.replace('"hash"', '"hsah"'), "keys[0].hash")], start=1
        ):
            file.write_text(text)
            gateway.hang_up()
            gateway.until_logged(NOT_READ, count)
            assert why in gateway.log
            assert gateway.code(key) == "OK"
        file.unlink()
        gateway.hang_up()
        gateway.until_logged(NOT_READ, 3)
        assert gateway.code(key) == "OK"


def test_the_operators_reload_answers_when_it_is_done(tmp_path: Path, file: Path) -> None:
    add(file, "first")
    with (
        running_gateway(tmp_path, keys_file=file) as gateway,
        grpc.insecure_channel(gateway.admin_address) as channel,
    ):
        stub = admin_pb2_grpc.AdminServiceStub(channel)
        second = add(file, "second")
        stub.ReloadConfiguration(admin_pb2.ReloadConfigurationRequest(), timeout=LIMIT_S)
        assert gateway.code(second) == "OK"
        file.write_text("{")
        with pytest.raises(grpc.RpcError) as refused:
            stub.ReloadConfiguration(admin_pb2.ReloadConfigurationRequest(), timeout=LIMIT_S)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "the old keys stay in force" in refused.value.details()
        assert gateway.code(second) == "OK"


def test_a_storm_of_sighups_harms_nobody(tmp_path: Path, file: Path) -> None:
    key = add(file, "first")
    with running_gateway(tmp_path, keys_file=file) as gateway:
        for _ in range(200):
            gateway.hang_up()
        gateway.until_logged(READ, 2)
        assert gateway.code(key) == "OK"


def test_sighup_while_it_starts_does_not_end_it(tmp_path: Path, file: Path) -> None:
    key = add(file, "first")
    gateway = GatewayProcess(tmp_path, keys_file=file)
    try:
        # From when it is Python: before that, not even a handler could be there.
        deadline = Path(f"/proc/{gateway.process.pid}/status")
        while not ignores_or_handles_sighup(deadline):
            assert gateway.process.poll() is None
        while '"state": "WARMING"' not in gateway.log:
            gateway.hang_up()
            assert gateway.process.poll() is None, gateway.log
        gateway.until_up()
        assert gateway.code(key) == "OK"
    finally:
        gateway.stop()


def ignores_or_handles_sighup(status: Path) -> bool:
    lines = dict(line.split(":\t", 1) for line in status.read_text().splitlines())
    return bool((int(lines["SigIgn"], 16) | int(lines["SigCgt"], 16)) & 1)


@pytest.mark.parametrize(
    ("text", "mode", "told"),
    [
        pytest.param(None, 0, "keys.json: No such file or directory; `hotline key add", id="none"),
        pytest.param("{", 0o600, "keys.json: Invalid JSON", id="broken"),
        pytest.param('{"version": 1}', 0o666, "keys.json: others may write it", id="mode"),
        pytest.param('{"version": 9}', 0o600, "keys.json: version: Input should", id="version"),
    ],
)
def test_a_file_that_cannot_be_used_refuses_the_start_in_a_line(
    tmp_path: Path, file: Path, text: str | None, mode: int, told: str
) -> None:
    if text is not None:
        file.write_text(text)
        file.chmod(mode)
    gateway = GatewayProcess(tmp_path, keys_file=file)
    assert gateway.process.wait(LIMIT_S) == 2
    assert f"gateway: {tmp_path}/{told}" in gateway.log
    assert "Traceback" not in gateway.log


def test_neither_keys_nor_anonymous_callers_refuses_the_start(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path)
    assert gateway.process.wait(LIMIT_S) == 2
    assert "nobody could call: keys_file names the API keys" in gateway.log


def test_a_file_that_others_may_read_is_told_in_the_log(tmp_path: Path, file: Path) -> None:
    key = add(file, "first")
    file.chmod(0o644)
    with running_gateway(tmp_path, keys_file=file) as gateway:
        assert gateway.code(key) == "OK"
        assert "others may read names and owners (mode 0644)" in gateway.log


def test_keys_and_what_was_sent_instead_are_in_no_log(tmp_path: Path, file: Path) -> None:
    key, wrong = add(file, "first"), "hl-0123456789ab-" + "w" * 43
    with running_gateway(tmp_path, keys_file=file, log_level="DEBUG") as gateway:
        assert gateway.code(key) == "OK"
        assert gateway.code(wrong) == "UNAUTHENTICATED"
        assert f'"key": "{key[3:15]}"' in gateway.log
        for secret in (key, key[16:], wrong, wrong[16:]):
            assert secret not in gateway.log


def test_anonymous_callers_may_stand_beside_keys(tmp_path: Path, file: Path) -> None:
    key = add(file, "first")
    with running_gateway(tmp_path, keys_file=file, allow_anonymous="true") as gateway:
        codes = [gateway.code(sent) for sent in (None, "EMPTY", key, "sk-unknown")]
        assert codes == ["OK", "OK", "OK", "UNAUTHENTICATED"]


def test_a_gateway_that_others_reach_and_that_asks_for_no_key_says_so(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path, allow_anonymous="true", address="0.0.0.0:0")
    try:
        gateway.until_logged("no key is asked for, and others reach this address")
    finally:
        assert gateway.stop() == 0


def test_an_admin_address_that_others_reach_refuses_the_start(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path, allow_anonymous="true", admin_address="0.0.0.0:0")
    assert gateway.process.wait(LIMIT_S) == 2
    assert "HOTLINE_GATEWAY_ADMIN_ADDRESS" in gateway.log


def test_an_admin_port_that_is_taken_ends_it(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        gateway = GatewayProcess(tmp_path, allow_anonymous="true", admin_address=address)
        assert gateway.process.wait(LIMIT_S) == 1
    assert address in gateway.log
