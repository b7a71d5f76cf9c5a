"""`hotline status --json` as a subprocess."""

import json
import subprocess
from pathlib import Path
from typing import Any

from up_process import Up, command


def status(up: Up, folder: Path | None = None) -> tuple[int, dict[str, Any]]:
    """Exit code, and what it printed; empty where it printed nothing."""
    found = subprocess.run(
        command("status", "--json", "--folder", str(folder or up.folder)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return found.returncode, json.loads(found.stdout) if found.stdout else {}


def processes(up: Up) -> list[dict[str, Any]]:
    """Every process of its stack."""
    found: list[dict[str, Any]] = status(up)[1]["stacks"][0]["processes"]
    return found
