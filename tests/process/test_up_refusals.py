"""What `hotline up` says, quickly and in full, where it cannot start."""

import socket
import subprocess
from pathlib import Path

import pytest
from up_process import command, running_up

MODEL = Path(__file__).parents[2] / "deploy" / "models" / "autoglm-phone-tiny"


def refused(*arguments: str) -> str:
    """Run `hotline up`; returns standard error of one that ends with 1."""
    done = subprocess.run(
        command("up", *arguments), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


ANONYMOUS = "gateway: {allow_anonymous: true}\n"


def write(folder: Path, text: str) -> str:
    file = folder / "stack.yaml"
    file.write_text(text)
    return str(file)


def test_an_unknown_configuration_is_named(tmp_path: Path) -> None:
    error = refused("--config", "nothing")
    assert "no configuration 'nothing'" in error
    assert "sim, tiny-cpu" in error


@pytest.mark.parametrize("text", ["", "hello\n"])
def test_a_file_that_is_no_mapping_is_told_in_one_line(tmp_path: Path, text: str) -> None:
    error = refused("--config", write(tmp_path, text))
    assert "must be a mapping of sections (model, edge," in error
    assert len(error.splitlines()) == 1


def test_an_unknown_key_is_named_with_the_known_ones(tmp_path: Path) -> None:
    file = write(tmp_path, f"model: {{path: {MODEL}, name: m}}\nworker: {{max_num_seq: 3}}\n")
    error = refused("--config", file, "--port", "0")
    assert f"{file}: worker: unknown keys: max_num_seq" in error
    assert "max_num_seqs" in error


def test_a_missing_model_is_named_and_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    file = write(tmp_path, "model: {path: nowhere, name: m}\nworker: {engine: sim}\n")
    error = refused("--config", file, "--port", "0")
    assert f"model_path: {tmp_path}/nowhere is no folder" in error
    assert [*temporary.iterdir()] == []


def test_a_metrics_port_in_use_is_named_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = f"model: {{path: {MODEL}, name: m}}\nworker: {{engine: sim}}\ngateway: {{allow_anonymous: true}}\n"
        file = write(tmp_path, f"{text}metrics: {{first_port: {port}}}\n")
        error = refused("--config", file, "--port", "0")
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use, the metrics of" in error
    assert "metrics.first_port" in error


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        error = refused("--config", "sim", "--port", str(port))
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in error


@pytest.mark.slow
def test_a_process_that_cannot_start_ends_it_all_with_the_end_of_its_log(tmp_path: Path) -> None:
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "config.json").write_text("{}")
    file = write(tmp_path, f"model: {{path: half, name: m}}\n{ANONYMOUS}worker: {{engine: sim}}\n")
    with running_up("--config", file, "--port", "0") as up:
        assert up.until_end() == 1
    assert "ended while starting. The end of " in up.text
    assert "MODEL_PATH: " in up.text  # what is wrong with the folder, from the log
    assert "the logs stay in " in up.text


@pytest.mark.slow
def test_a_stack_that_is_late_names_who_is_waited_for(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        f"model: {{path: {MODEL}, name: m}}\n{ANONYMOUS}worker: {{engine: sim}}\nstart_timeout_s: 1.5\n",
    )
    with running_up("--config", file, "--port", "0") as up:
        assert up.until_end() == 1
    assert "not ready after 1.5 s; waiting for " in up.text
