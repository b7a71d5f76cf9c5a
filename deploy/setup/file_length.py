"""Fails where a source file is longer than one job needs: `python deploy/setup/file_length.py`, part of `make check`."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("services", "deploy", "benchmarks")
LIMIT = 300


def main() -> None:
    """Print every file that is too long, and exit with 1 where there is one."""
    too_long = []
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > LIMIT:
            too_long.append(f"{name}: {lines} lines, the limit is {LIMIT}")
    if too_long:
        sys.exit("\n".join(too_long))


if __name__ == "__main__":
    main()
