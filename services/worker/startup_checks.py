"""The checks before an engine starts: a line each, and all of them, so that one look tells everything."""

from collections.abc import Callable
from dataclasses import dataclass

from services.worker.machine import Machine, UnfitError, check_devices, check_versions
from services.worker.memory import check_memory, need
from services.worker.model_files import IncompleteModelError, check_model_files, read_json
from services.worker.settings import WorkerSettings


@dataclass(frozen=True)
class Check:
    """What one check found."""

    name: str
    passed: bool
    told: str
    """What was found, or what is wrong."""

    @property
    def line(self) -> str:
        """For people."""
        return f"check {self.name}: {'ok' if self.passed else 'failed'}: {self.told}"


def check_start(settings: WorkerSettings, machine: Machine) -> list[Check]:
    """Every check of a vLLM worker, in the order in which they are read."""
    wanted = settings.tensor_parallel_size * settings.pipeline_parallel_size
    folder = settings.model_path
    file_bytes = 0

    def files() -> str:
        nonlocal file_bytes
        file_bytes = check_model_files(folder, settings.load_format)
        return f"{folder}, weights {file_bytes / 1e9:.2f} GB"

    def memory() -> str:
        config = read_json(folder / "config.json")
        return check_memory(machine, settings, need(settings, config, file_bytes))

    return [
        _run("versions", lambda: check_versions(machine)),
        _run("devices", lambda: check_devices(machine, wanted)),
        _run("model files", files),
        _run("memory", memory),
    ]


def _run(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, passed=True, told=check())
    except (UnfitError, IncompleteModelError) as error:
        return Check(name, passed=False, told=str(error))
