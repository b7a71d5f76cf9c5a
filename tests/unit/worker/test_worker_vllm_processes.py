"""What is changed in vLLM's own processes, and what is removed after them."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from services.runtime.start import StartRefusedError
from services.worker import vllm_remains


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of /dev/shm; temporary files go beside it."""
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setattr(vllm_remains, "_SHARED_MEMORY", folder)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("VLLM_RPC_BASE_PATH", "elsewhere")
    monkeypatch.setattr(vllm_remains, "_SOCKET_PATH_BYTES", 1000)  # pytest's paths are long
    return folder


def test_an_engine_has_a_folder_that_vllm_is_told_of(shared: Path):
    folder = vllm_remains.create_folder()
    assert folder.is_dir()
    assert os.environ["VLLM_RPC_BASE_PATH"] == str(folder)
    assert vllm_remains.meeting_point() == f"file://{folder}/vllm_dist_{folder.name}"


def test_sockets_and_shared_memory_of_one_engine_go_and_those_of_others_stay(shared: Path):
    other = vllm_remains.create_folder()
    folder = vllm_remains.create_folder()
    mine, theirs = [
        shared / f"vllm_dist_{owner.name}-tp:0-[0-1]-cpushm_0" for owner in (folder, other)
    ]
    for path in (mine, theirs, shared / "psm_1", folder / "socket", other / "socket"):
        path.touch()
    vllm_remains.remove_own_remains()
    assert not mine.exists()
    assert not folder.exists()
    assert sorted(path.name for path in shared.iterdir()) == sorted(["psm_1", theirs.name])
    assert (other / "socket").exists()


def test_removing_twice_is_no_error(shared: Path):
    folder = vllm_remains.create_folder()
    vllm_remains.remove_remains(folder)
    vllm_remains.remove_remains(folder)


def test_a_path_too_long_for_sockets_is_refused_and_leaves_no_folder(
    shared: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(vllm_remains, "_SOCKET_PATH_BYTES", 50)
    with pytest.raises(StartRefusedError, match="set TMPDIR"):
        vllm_remains.create_folder()
    assert not list(shared.parent.glob("hotline-engine-*"))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_grammars_are_compiled_by_a_thread_that_gives_way(monkeypatch: pytest.MonkeyPatch):
    from vllm.v1.structured_output import StructuredOutputManager

    from services.worker.vllm_grammars import compile_grammars_last

    found: list[tuple[str, int]] = []

    def create(manager: Any, request: Any) -> None:
        found.append((request, os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))

    monkeypatch.setattr(StructuredOutputManager, "_create_grammar", create)
    compile_grammars_last()
    thread = threading.Thread(
        target=StructuredOutputManager._create_grammar, args=(None, "its thread")
    )
    thread.start()
    thread.join()
    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    StructuredOutputManager._create_grammar(None, "main thread")  # type: ignore[arg-type]
    assert found == [("its thread", 19), ("main thread", before)]
