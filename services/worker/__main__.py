"""`python -m services.worker`: one worker process, configured by HOTLINE_WORKER_* variables."""

import sys

from services.runtime.lifecycle import run
from services.worker.app import WorkerApp
from services.worker.settings import WorkerSettings


def main() -> int:
    """Serve until a signal; returns the exit code, 2 where the settings are wrong."""
    return run("worker", WorkerSettings, WorkerApp)


if __name__ == "__main__":
    sys.exit(main())
