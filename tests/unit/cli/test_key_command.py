"""`hotline key` as an operator types it: the key is shown once, the file is the gateway's, errors are a line."""

import json
import stat
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from services.cli.command_line import run
from services.gateway import key_file
from services.gateway.key_ring import FileKeyRing

Capture = pytest.CaptureFixture[str]
Key = Callable[..., tuple[int, str, str]]
MODEL = Path(__file__).parents[3] / "deploy" / "models" / "autoglm-phone-tiny"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


@pytest.fixture
def key(file: Path, capsys: Capture) -> Key:
    """Runs `hotline key ...` on the file; exit code, output, errors."""

    def command(action: str, *arguments: str) -> tuple[int, str, str]:
        code = run(["key", action, *arguments, "--file", str(file)])
        told = capsys.readouterr()
        return code, told.out, told.err

    return command


def found(file: Path, text: str, now: datetime | None = None) -> object:
    ring = FileKeyRing(file, lambda: now or datetime.now(UTC))
    ring.load()
    return ring.find(text)


def test_a_new_key_alone_is_on_standard_output_and_opens_the_gateway(key: Key, file: Path) -> None:
    code, output, errors = key("add", "phone")
    assert (code, output.count("\n")) == (0, 1)
    assert found(file, output.strip()) is not None
    assert "shown this once" in errors
    assert "kill -HUP" in errors
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_file_and_the_list_do_not_hold_the_key(key: Key, file: Path) -> None:
    text = key("add", "phone")[1].strip()
    secret = text.split("-", 2)[2]
    assert secret not in file.read_text()
    stored_hash = json.loads(file.read_text())["keys"][0]["hash"]
    for arguments in ([], ["--json"]):
        code, output, errors = key("list", *arguments)
        assert code == 0
        assert "phone" in output
        assert not [word for word in (secret, stored_hash) if word in output + errors]


def test_every_option_reaches_the_caller(key: Key, file: Path) -> None:
    options = (
        "--owner acme --expires 90d --max-concurrent 3 --tokens-per-minute 1000 --burst-tokens 50"
    )
    more = "--requests-per-minute 7 --first-priority 0 --weight 2.5 --model m --model n"
    text = key("add", "phone", *options.split(), *more.split())[1].strip()
    caller = found(file, text)
    assert caller.owner == "acme"  # type: ignore[attr-defined]
    assert caller.models == {"m", "n"}  # type: ignore[attr-defined]
    limits = caller.limits  # type: ignore[attr-defined]
    assert (limits.max_concurrent, limits.tokens_per_minute, limits.burst_tokens) == (3, 1000, 50)
    assert (limits.requests_per_minute, limits.first_priority, limits.weight) == (7, 0, 2.5)
    soon = datetime.now(UTC) + timedelta(days=89, hours=23)
    assert found(file, text, soon) is not None
    assert found(file, text, soon + timedelta(hours=2)) is None


def test_a_key_without_an_owner_is_its_own(key: Key, file: Path) -> None:
    owners = set()
    for name in ("a", "b"):
        owners.add(found(file, key("add", name)[1].strip()).owner)  # type: ignore[attr-defined]
    assert owners == {entry["id"] for entry in json.loads(file.read_text())["keys"]}


@pytest.mark.parametrize(
    ("when", "is_known_at"),
    [
        pytest.param("2100-01-31", "2100-01-30T23:59:59+00:00", id="date"),
        pytest.param("2100-01-31T12:00", "2100-01-31T11:59:59+00:00", id="UTC"),
        pytest.param("2100-01-31T12:00:00+02:00", "2100-01-31T09:59:59+00:00", id="zone"),
    ],
)
def test_a_key_is_known_until_it_expires(key: Key, file: Path, when: str, is_known_at: str) -> None:
    text = key("add", "phone", "--expires", when)[1].strip()
    last = datetime.fromisoformat(is_known_at)
    assert found(file, text, last) is not None
    assert found(file, text, last + timedelta(seconds=1)) is None


@pytest.mark.parametrize("named_by", ["id", "name"])
def test_a_revoked_key_opens_nothing_and_its_name_is_free(
    key: Key, file: Path, named_by: str
) -> None:
    text = key("add", "phone")[1].strip()
    wanted = json.loads(file.read_text())["keys"][0][named_by]
    code, output, errors = key("revoke", wanted)
    assert (code, output) == (0, "")
    assert "is revoked" in errors
    assert found(file, text) is None
    code, output, _ = key("add", "phone")
    assert code == 0
    assert found(file, output.strip()) is not None
    listed = json.loads(key("list", "--json")[1])["keys"]
    assert [entry["state"] for entry in listed] == ["revoked", "active"]


def test_revoking_twice_says_so_and_is_no_error(key: Key, file: Path) -> None:
    key("add", "phone")
    key_id = json.loads(file.read_text())["keys"][0]["id"]
    key("revoke", key_id)
    code, _, errors = key("revoke", key_id)
    assert (code, "revoked already" in errors) == (0, True)


def test_the_list_shows_what_a_key_may_do(key: Key) -> None:
    key("add", "phone", "--max-concurrent", "3", "--model", "m", "--expires", "2100-01-31")
    lines = key("list")[1].splitlines()
    assert lines[0].split() == [
        *("id", "name", "owner", "state", "created", "expires", "limits", "models")
    ]
    for words in ("phone", "active", "2100-01-31T00:00Z", "max_concurrent=3"):
        assert words in lines[1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(["add", "a b"], "name: String should match", id="name"),
        pytest.param(["add", "x", "--owner", "anonymous"], "'anonymous' is who comes", id="owner"),
        pytest.param(["add", "x", "--max-concurrent", "0"], "max_concurrent: Input", id="limit"),
        pytest.param(["add", "x", "--weight", "nan"], "weight: Input should be", id="NaN"),
        pytest.param(["add", "x", "--burst-tokens", "5"], "without tokens_per_minute", id="burst"),
        pytest.param(["add", "x", "--expires", "soon"], "'soon' is no date", id="no date"),
        pytest.param(["add", "x", "--expires", "9999-99-99"], "is no date", id="no such date"),
        pytest.param(["add", "x", "--expires", "2020-01-01"], "has passed", id="past"),
        pytest.param(["add", "phone"], "'phone' is the name of a key already", id="name taken"),
        pytest.param(["revoke", "nobody"], "no key in use has the id or name", id="unknown"),
    ],
)
def test_what_cannot_be_done_is_told_and_changes_nothing(
    key: Key, file: Path, arguments: list[str], told: str
) -> None:
    key("add", "phone")
    before = file.read_bytes()
    code, output, errors = key(*arguments)
    assert (code, output) == (1, "")
    assert errors.startswith("error: ")
    assert told in errors
    assert file.read_bytes() == before


@pytest.mark.parametrize("arguments", [["list"], ["revoke", "phone"]])
def test_without_a_file_there_is_nothing_to_show_or_revoke(key: Key, arguments: list[str]) -> None:
    code, output, errors = key(*arguments)
    assert (code, output) == (1, "")
    assert "No such file" in errors


def test_a_broken_file_is_not_overwritten(key: Key, file: Path) -> None:
    file.write_text("{")
    file.chmod(0o600)
    code, output, errors = key("add", "phone")
    assert (code, output) == (1, "")
    assert "Invalid JSON" in errors
    assert file.read_text() == "{"


def test_a_configuration_names_the_file(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "deploy").mkdir()
    stack = tmp_path / "deploy" / "stack.yaml"
    stack.write_text(
        f"model: {{path: {MODEL}, name: m}}\ngateway: {{keys_file: ../secret/keys.json}}\n"
    )
    (tmp_path / "secret").mkdir()
    assert run(["key", "add", "phone", "--config", str(stack)]) == 0
    assert len(key_file.read(tmp_path / "secret" / "keys.json")[0].keys) == 1
    stack.write_text(f"model: {{path: {MODEL}, name: m}}\n")
    assert run(["key", "list", "--config", str(stack)]) == 1
    assert "gateway.keys_file is not set there" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["key"], id="no action"),
        pytest.param(["key", "add"], id="no name"),
        pytest.param(["key", "add", "x", "--max-concurrent", "many"], id="no number"),
        pytest.param(["key", "list", "--file", "a", "--config", "b"], id="two places"),
        pytest.param(["key", "list", "--frobnicate"], id="unknown option"),
    ],
)
def test_wrong_usage_shows_the_commands_own_usage(arguments: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        run(arguments)
    assert ended.value.code == 2
    assert f"usage: hotline {' '.join(arguments[:2])}" in capsys.readouterr().err


def test_several_writers_at_once_lose_nothing(file: Path) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-m", "services.cli", "key", "add", f"k{n}", "--file", str(file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(4)
    ]
    for writer in writers:
        output, errors = writer.communicate(timeout=60)
        assert writer.returncode == 0, errors
        assert found(file, output.strip()) is not None
    assert len(key_file.read(file)[0].keys) == 4
