"""The `hotline` command as a user types it."""

import json
import os
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest

from services.cli.command_line import build_parser

Capture = pytest.CaptureFixture[str]


def hotline(
    *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).with_name("hotline")), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": "/usr/bin:/bin", **(environment or {})},
    )


def test_help_names_every_command() -> None:
    done = hotline("--help")
    assert done.returncode == 0
    for name in ("up", "chat", "gateway", "tokenizer", "worker", "edge"):
        assert f"\n    {name}" in done.stdout


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from services.cli.command_line import build_parser; build_parser().format_help(); "
        "print([m for m in ('grpc', 'torch', 'vllm', 'pydantic', 'yaml', 'rich') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_version_is_the_packages() -> None:
    done = hotline("--version")
    assert done.stdout.strip() == f"hotline {metadata.version('hotline-serving')}"


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param([], id="no command"),
        pytest.param(["fly"], id="unknown command"),
        pytest.param(["up", "--prot", "1"], id="unknown option"),
        pytest.param(["up", "--port", "x"], id="port"),
        pytest.param(["up", "--port", "-1"], id="negative port"),
        pytest.param(["up", "--port", "65536"], id="port too large"),
        pytest.param(["chat"], id="no text"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    done = hotline(*arguments)
    assert done.returncode == 2
    assert "usage: hotline" in done.stderr


@pytest.mark.parametrize("service", ["gateway", "tokenizer", "worker"])
def test_a_service_without_settings_names_what_is_missing_and_shows_no_traceback(
    service: str,
) -> None:
    done = hotline(service)
    assert done.returncode in (1, 2)
    assert "Field required" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_service_reads_its_settings_from_a_file_too(tmp_path: Path) -> None:
    file = tmp_path / "environment.json"
    file.write_text(json.dumps({"HOTLINE_GATEWAY_MAX_RUNING": "1"}))
    done = hotline("gateway", "--environment", str(file))
    assert done.returncode == 2
    assert "unknown settings: HOTLINE_GATEWAY_MAX_RUNING" in done.stderr


def test_chat_with_nobody_there_is_one_line_and_exit_code_1() -> None:
    start_s = time.monotonic()
    done = hotline("chat", "--address", "127.0.0.1:1", "hello")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: the service at 127.0.0.1:1 does not answer; is `hotline up` running?\n"
    )
    assert time.monotonic() - start_s < 20


def test_chat_with_a_missing_image_is_one_line_and_exit_code_1() -> None:
    done = hotline("chat", "--image", "/no/such.png", "hello")
    assert (done.returncode, done.stderr) == (1, "error: /no/such.png: No such file or directory\n")


@pytest.mark.parametrize(
    ("arguments", "limit"),
    [
        pytest.param(["chat", "--max-tokens", "-1", "hello"], "must be 1 to", id="count"),
        pytest.param(["chat", "--max-tokens", "4294967296", "hello"], "must be 1 to", id="large"),
        pytest.param(["chat", "--timeout", "nan", "hello"], "must be seconds, above 0", id="nan"),
        pytest.param(["chat", "--timeout", "soon", "hello"], "must be seconds, above 0", id="word"),
        pytest.param(["status", "--timeout", "-1"], "must be seconds, above 0", id="negative"),
    ],
)
def test_a_number_out_of_range_is_told_with_its_option_and_its_limit(
    arguments: list[str], limit: str
) -> None:
    done = hotline(*arguments)
    *_, last = done.stderr.splitlines()
    assert done.returncode == 2
    assert f"argument {arguments[1]}: {arguments[2]!r} is not allowed; {limit}" in last


def test_a_port_out_of_range_is_told_the_range() -> None:
    assert "'99999' is not a port: 0 to 65535" in hotline("up", "--port", "99999").stderr


@pytest.mark.parametrize("command", ["up", "chat", "edge"])
def test_an_unknown_option_shows_the_usage_of_its_command(command: str) -> None:
    text = ["hello"] if command == "chat" else []
    done = hotline(command, *text, "--frobnicate")
    assert done.returncode == 2
    assert f"usage: hotline {command} " in done.stderr
    assert "unrecognized arguments: --frobnicate" in done.stderr


@pytest.mark.parametrize(
    "address",
    [
        *("foo", "http://127.0.0.1:8000/v1", "http://127.0.0.1:8000", "", ":8000", "::1:8000"),
        *("h:", "h:0", "h:65536", "a b:1", "unix:", "unix:relative"),
    ],
)
def test_an_address_that_is_none_is_wrong_usage(address: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args(["chat", "--address", address, "hello"])
    assert ended.value.code == 2
    assert f"{address!r} is neither host:port, such as 127.0.0.1:8000, nor unix:/path" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("address", ["localhost:1", "[::1]:8000", "a-b.c_d:65535", "unix:/x/y"])
def test_an_address_is_taken_as_it_is(address: str) -> None:
    options = build_parser().parse_args(["chat", "--address", address, "hello"])
    assert options.address == address


INTERRUPTED_IMPORT = """
import builtins, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
wanted, arguments = sys.argv[1], sys.argv[2:]
real = builtins.__import__
def importing(name, *rest):
    if name == wanted:
        os.kill(os.getpid(), signal.SIGINT)
    return real(name, *rest)
from services.cli.__main__ import main
builtins.__import__ = importing
sys.exit(main(arguments))
"""


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        pytest.param("argparse", ["--help"], id="before anything"),
        pytest.param("yaml", ["up", "--port", "0"], id="up"),
        pytest.param("grpc", ["chat", "hello"], id="chat"),
        pytest.param("pydantic", ["gateway"], id="a service"),
    ],
)
def test_ctrl_c_during_an_import_is_quiet(module: str, arguments: list[str]) -> None:
    command = [sys.executable, "-c", INTERRUPTED_IMPORT, module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_commands_own_module_imports_only_what_is_there_already() -> None:
    code = (
        "import sys; import services.cli; before = set(sys.modules); import services.cli.__main__; "
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "['services.cli.__main__']"


def test_help_that_nobody_reads_ends_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "services.cli", "--help"]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        command, stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False, env=buffered
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")
