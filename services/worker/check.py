"""`hotline worker --check`: the checks before a start, and nothing else."""

import os
import sys

from services.runtime.settings import explain
from services.runtime.start import StartRefusedError
from services.worker.model import read_model
from services.worker.settings import WorkerSettings
from services.worker.startup_checks import Check, check_start
from services.worker.vllm_arguments import engine_configuration
from services.worker.vllm_machine import look
from services.worker.vllm_process import prepare_environment


def main() -> int:
    """Print a line for each check; returns 0 where all passed, else 2."""
    try:
        settings = WorkerSettings.read()
    except ValueError as error:
        sys.stderr.write(explain(WorkerSettings, error))
        return 2
    try:
        facts = read_model(settings.model_path, settings.mm_processor_kwargs)
    except ValueError as error:
        sys.stderr.write(f"HOTLINE_WORKER_MODEL_PATH: {error}\n")
        return 2
    if settings.engine != "vllm":
        sys.stdout.write(f"check engine: ok: {settings.engine} needs no devices\n")
        return 0
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")  # its warnings would hide our lines
    prepare_environment(settings)
    checks = check_start(settings, look())
    if all(check.passed for check in checks):  # vLLM itself says less clearly what they say
        checks.append(_flags(settings, facts.images is not None))
    sys.stdout.write("".join(f"{check.line}\n" for check in checks))
    return 0 if all(check.passed for check in checks) else 2


def _flags(settings: WorkerSettings, has_images: bool) -> Check:
    try:
        engine_configuration(settings, has_images)
    except StartRefusedError as error:
        return Check("engine flags", passed=False, told="; ".join(error.lines))
    return Check("engine flags", passed=True, told="vLLM takes them all")
