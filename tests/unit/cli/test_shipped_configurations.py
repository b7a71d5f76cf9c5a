"""The configurations of deploy/config: every one can be planned, and its parts agree."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from services.cli.configuration import Configuration, load, with_model_path
from services.cli.processes import plan

ROOT = Path(__file__).parents[3]
TINY = ROOT / "deploy/models/autoglm-phone-tiny"
FILES = sorted((ROOT / "deploy/config").glob("*.yaml"))
SCRIPT = ROOT / "deploy/run_autoglm_server.sh"


@pytest.fixture(params=FILES, ids=[file.stem for file in FILES])
def configuration(request: pytest.FixtureRequest) -> Configuration:
    loaded = load(request.param)
    # The 9B model's files are the user's own.
    return loaded if loaded.model.path.is_dir() else with_model_path(loaded, TINY)


def test_every_setting_is_one_that_its_service_takes(configuration: Configuration, tmp_path: Path):
    names = {planned.name for planned in plan(configuration, tmp_path)}
    assert "worker-0" in names


@pytest.mark.parametrize(
    "sections",
    [
        pytest.param({"tokenizer": {"max_pixels": 5}}, id="tokenizer only"),
        pytest.param({"worker": {"mm_processor_kwargs": {"max_pixels": 5}}}, id="worker only"),
    ],
)
def test_pixels_that_differ_between_tokenizer_and_worker_are_refused(sections: dict[str, Any]):
    model = {"path": str(TINY), "name": "m"}
    with pytest.raises(ValueError, match=r"max_pixels.*they must agree"):
        Configuration.model_validate({"model": model, **sections})


def test_a_none_of_the_file_reaches_the_process(tmp_path: Path):
    loaded = with_model_path(load(ROOT / "deploy/config/autoglm-phone-9b.yaml"), TINY)
    [worker] = [planned for planned in plan(loaded, tmp_path) if planned.role == "worker"]
    assert worker.environment["HOTLINE_WORKER_KV_CACHE_MEMORY_BYTES"] == "null"


def script(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [SCRIPT, *arguments],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        pytest.param({}, "MODEL_PATH is not set", id="unset"),
        pytest.param({"MODEL_PATH": "/nowhere"}, "is no folder", id="no folder"),
        pytest.param({"MODEL_PATH": str(ROOT)}, "has no config.json", id="no model"),
    ],
)
def test_the_script_refuses_a_start_without_a_model(environment: dict[str, str], told: str):
    done = script(**environment)
    assert (done.returncode, told in done.stderr) == (2, True)


def test_the_script_explains_itself():
    done = script("--help")
    assert done.returncode == 0
    assert "MODEL_PATH=" in done.stdout


def test_the_scripts_check_says_what_it_runs_and_starts_nothing():
    done = script("--check", MODEL_PATH=str(TINY), CONFIG="sim")
    assert done.returncode == 0, done.stderr
    assert "hotline check --config sim --model-path" in done.stdout
    assert "starts:" not in done.stdout
