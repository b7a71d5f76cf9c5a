"""`hotline check`, without an engine: what it runs and how it ends."""

from pathlib import Path

import pytest

from services.cli import check
from services.cli.command_line import run
from services.cli.configuration import find, load, with_model_path

MODELS = Path(__file__).parents[3] / "deploy/models"


def test_a_simulator_has_nothing_to_check(capfd: pytest.CaptureFixture[str]):
    assert run(["check", "--config", "sim"]) == 0
    assert "check engine: ok: sim needs no devices" in capfd.readouterr().out


def test_a_configuration_that_is_none_ends_with_code_1(capsys: pytest.CaptureFixture[str]):
    assert check.main("nowhere.yaml", None) == 1
    assert "nowhere.yaml" in capsys.readouterr().err


def test_a_model_folder_that_is_none_ends_with_code_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    assert run(["check", "--model-path", str(tmp_path / "nowhere")]) == 1
    assert "is no folder" in capsys.readouterr().err


def test_another_model_path_replaces_the_configured_one():
    configuration = load(find("autoglm-phone-9b"))
    assert with_model_path(configuration, None) is configuration
    other = with_model_path(configuration, MODELS / "autoglm-phone-tiny")
    assert other.model.path == MODELS / "autoglm-phone-tiny"
    assert other.model.name == "autoglm-phone-9b"


@pytest.mark.slow
def test_missing_devices_end_with_code_2_and_a_line_for_each_check(
    capfd: pytest.CaptureFixture[str],
):
    model = str(MODELS / "autoglm-phone-tiny")
    assert run(["check", "--config", "autoglm-phone-9b", "--model-path", model]) == 2
    lines = capfd.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "check versions",
        "check devices",
        "check model files",
        "check memory",
        "check keys",  # this configuration wants a file of them
    ]
    assert "hotline key add" in lines[-1]
    assert lines[1].startswith("check devices: failed: ")


@pytest.mark.slow
def test_a_configuration_that_fits_ends_with_code_0(capfd: pytest.CaptureFixture[str]):
    assert run(["check"]) == 0
    assert capfd.readouterr().out.splitlines()[-1].startswith("check engine flags: ok")
