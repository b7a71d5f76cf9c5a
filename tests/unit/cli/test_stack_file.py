"""`hotline status` believes only stacks that live and are this user's."""

import json
import os
import tempfile
from pathlib import Path

import pytest

from services.cli import stack_file
from services.cli.processes import ProcessPlan

PLAN = ProcessPlan(
    *("gateway", "gateway", "unix:/x/gateway.sock"),
    {},
    1.0,
    metrics_address="127.0.0.1:9464",
    admin_address="unix:/x/gateway-admin.sock",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = Path(tempfile.mkdtemp(prefix=stack_file.FOLDER_PREFIX))
    stack_file.write(made, [PLAN])
    return made


def change(folder: Path, **values: object) -> None:
    file = folder / stack_file.FILE_NAME
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def test_a_living_stack_is_found_with_its_processes(folder: Path) -> None:
    (found,) = stack_file.find()
    assert (found.folder, found.pid) == (folder, os.getpid())
    assert found.processes == (
        stack_file.Listed(
            "gateway", "gateway", PLAN.address, "127.0.0.1:9464", "unix:/x/gateway-admin.sock"
        ),
    )


def test_a_stack_whose_process_has_ended_is_passed_over(folder: Path) -> None:
    change(folder, pid=2**22 + 1)  # above the largest pid of Linux
    assert stack_file.find() == []


def test_a_pid_that_was_given_anew_is_not_the_stacks(folder: Path) -> None:
    change(folder, start_ticks=1)
    assert stack_file.find() == []


def test_a_folder_that_others_may_enter_is_not_believed(folder: Path) -> None:
    folder.chmod(0o755)
    assert stack_file.find() == []


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("[]", id="list"),
        pytest.param("{}", id="no keys"),
        pytest.param('{"pid": 1, "processes": [3]}', id="no object"),
        pytest.param('{"pid": "x", "processes": []}', id="pid"),
    ],
)
def test_a_file_that_is_none_is_passed_over(folder: Path, text: str) -> None:
    (folder / stack_file.FILE_NAME).write_text(text)
    assert stack_file.find() == []


def test_a_link_to_a_folder_is_not_followed(folder: Path) -> None:
    os.symlink(folder, folder.with_name(f"{stack_file.FOLDER_PREFIX}link"))
    assert [stack.folder for stack in stack_file.find()] == [folder]
