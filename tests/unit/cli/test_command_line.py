"""The `hotline` command as a user types it."""

import json
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest


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
        "import sys; from services.cli.__main__ import build_parser; build_parser().format_help(); "
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
    assert done.stderr == ("error: the service at 127.0.0.1:1 does not answer. [UNAVAILABLE]\n")
    assert time.monotonic() - start_s < 20


def test_chat_with_a_missing_image_is_one_line_and_exit_code_1() -> None:
    done = hotline("chat", "--image", "/no/such.png", "hello")
    assert (done.returncode, done.stderr) == (1, "error: /no/such.png: No such file or directory\n")


def test_chat_with_a_number_out_of_range_is_one_line_and_exit_code_1() -> None:
    done = hotline("chat", "--max-tokens", "-1", "hello")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
