"""Where the files of `deploy/` are: in the source tree, or beside an installed wheel."""

import sys
from pathlib import Path

import services


def deployment_file(*parts: str) -> Path:
    """A file or folder below `deploy/`. Raises FileNotFoundError naming the places where it was sought."""
    places = (
        Path(services.__file__).resolve().parents[1] / "deploy",
        Path(sys.prefix) / "share" / "hotline" / "deploy",
    )
    for place in places:
        path = place.joinpath(*parts)
        if path.exists():
            return path
    raise FileNotFoundError(f"{'/'.join(parts)} is in none of {', '.join(map(str, places))}")
