"""`python -m services.worker`: one worker process, configured by HOTLINE_WORKER_* variables."""

import sys

from services.runtime.lifecycle import run
from services.runtime.settings import explain
from services.worker.app import WorkerApp
from services.worker.settings import WorkerSettings


def main() -> int:
    """Read the settings and serve until a signal. Returns the exit code: 2 where the settings are wrong."""
    try:
        settings = WorkerSettings.read()
    except ValueError as error:
        sys.stderr.write(explain(WorkerSettings, error))
        return 2
    try:
        app = WorkerApp(settings)
    except ValueError as error:
        sys.stderr.write(f"HOTLINE_WORKER_MODEL_PATH: {error}\n")
        return 2
    return run("worker", app, settings)


if __name__ == "__main__":
    sys.exit(main())
