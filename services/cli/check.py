"""`hotline check`: what a worker of a configuration would find on this machine, without starting anything."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from services.cli.configuration import (
    Configuration,
    ConfigurationError,
    find,
    load,
    with_model_path,
)
from services.cli.keys_check import check_keys
from services.cli.processes import plan

CHECK_FAILED = 2


def main(name: str, model_path: Path | None) -> int:
    """Run the checks in a process with a worker's environment; they print a line each.

    Args:
        name: a configuration file, or the name of one in deploy/config.
        model_path: replaces the model's folder.

    Returns:
        0 where all is well, 1 where the configuration cannot be used, 2 where a check failed.
    """
    try:
        configuration = with_model_path(load(find(name)), model_path)
        with tempfile.TemporaryDirectory(prefix="hotline-") as folder:
            plans = plan(configuration, Path(folder))
    except ConfigurationError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    worker = next(planned for planned in plans if planned.role == "worker")  # all are alike
    command = [sys.executable, "-m", "services.cli", "worker", "--check"]
    code = subprocess.run(command, env={**os.environ, **worker.environment}, check=False).returncode
    return code if _has_keys(configuration) else CHECK_FAILED


def _has_keys(configuration: Configuration) -> bool:
    """Whether the gateway could start with its keys; one more line where it could not."""
    try:
        check_keys(configuration)
    except ConfigurationError as error:
        print(f"check keys: failed: {'; '.join(str(error).splitlines())}")
        return False
    return True
