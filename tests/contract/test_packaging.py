"""What is in the wheel, and what an import brings along."""

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODEL_STACK = ("torch", "vllm", "transformers", "tokenizers", "numpy", "PIL")


def imported(statement: str, *names: str) -> list[str]:
    """Which of these modules a fresh Python has after a statement."""
    code = f"import sys\n{statement}\nprint(*(m for m in {names!r} if m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("package", ["runtime", "gateway", "tokenizer", "worker", "cli"])
def test_importing_a_package_brings_nothing_along(package: str) -> None:
    assert imported(f"import services.{package}", *MODEL_STACK, "grpc", "pydantic") == []


@pytest.mark.parametrize("package", ["gateway", "tokenizer", "worker"])
def test_settings_are_read_without_the_model_stack(package: str) -> None:
    assert imported(f"import services.{package}.settings", *MODEL_STACK, "grpc") == []


def gateway_modules() -> Iterator[str]:
    folder = ROOT / "services" / "gateway"
    for path in sorted(folder.rglob("*.py")):
        module = path.relative_to(ROOT).with_suffix("")
        yield ".".join(part for part in module.parts if part != "__init__")


def test_the_whole_gateway_runs_without_the_model_stack() -> None:
    modules = [*gateway_modules()]
    assert "services.gateway.__main__" in modules
    statement = f"import importlib\nfor m in {modules!r}: importlib.import_module(m)"
    assert imported(statement, *MODEL_STACK) == []


def test_the_command_line_starts_a_stack_without_the_model_stack() -> None:
    assert imported("import services.cli.up, services.cli.chat", *MODEL_STACK) == []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [str(Path(sys.executable).with_name("hatchling")), "build", "-t", "wheel"]
    done = subprocess.run(
        [*command, "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (file,) = folder.glob("*.whl")
    return zipfile.ZipFile(file)


@pytest.mark.parametrize(
    "name",
    [
        "hotline/v1/descriptor.binpb",
        "hotline/v1/inference_pb2.py",
        "hotline/v1/inference_pb2.pyi",
        "hotline/v1/openai_pb2_grpc.py",
        "hotline/py.typed",
        "services/runtime/errors.py",
        "services/gateway/__main__.py",
        "services/cli/__main__.py",
    ],
)
def test_the_wheel_holds_the_contract_and_the_services(wheel: zipfile.ZipFile, name: str) -> None:
    assert name in wheel.namelist()


@pytest.mark.parametrize(
    "name", ["envoy/envoy.yaml", "envoy/edge.lua", "config/tiny-cpu.yaml", "config/sim.yaml"]
)
def test_the_wheel_holds_what_up_needs_from_deploy(wheel: zipfile.ZipFile, name: str) -> None:
    assert any(member.endswith(f"data/share/hotline/deploy/{name}") for member in wheel.namelist())


def test_the_wheel_holds_nothing_else(wheel: zipfile.ZipFile) -> None:
    version = "hotline_serving-"
    tops = {name.split("/")[0] for name in wheel.namelist() if not name.startswith(version)}
    assert tops == {"hotline", "hotline_client", "services"}
    assert not [name for name in wheel.namelist() if "training" in name or "/tests/" in name]


def test_the_package_has_the_console_script() -> None:
    from importlib.metadata import entry_points

    (script,) = entry_points(group="console_scripts", name="hotline")
    assert script.value == "services.cli.__main__:main"
