"""Generates, checks and guards the contract: `python protos/build.py generate|check|lint|baseline`.

generate   write protos/gen: messages, services, typed stubs, and the descriptor set that Envoy's transcoder reads
check      fail where protos/gen is not what `generate` would write
lint       buf's STANDARD and COMMENTS rules, and FILE compatibility with protos/baseline.binpb
baseline   renew protos/baseline.binpb; only on purpose, when a version of the contract is released
"""

import filecmp
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

PROTOS = Path(__file__).resolve().parent
GENERATED = PROTOS / "gen"
BASELINE = PROTOS / "baseline.binpb"
DESCRIPTOR = Path("hotline/v1/descriptor.binpb")
BIN = Path(sys.executable).parent


def _includes() -> list[str]:
    """The import path: our protos, and those of googleapis-common-protos and protobuf."""
    google = find_spec("google.api")
    assert google is not None
    assert google.submodule_search_locations
    return [f"-I{PROTOS}", f"-I{Path(next(iter(google.submodule_search_locations))).parents[1]}"]


def _protoc(*arguments: str) -> None:
    files = sorted(str(path.relative_to(PROTOS)) for path in (PROTOS / "hotline").rglob("*.proto"))
    command = [sys.executable, "-m", "grpc_tools.protoc", *_includes(), *arguments, *files]
    subprocess.run(command, check=True, timeout=120)


def _quiet(output: str) -> str:
    return "quiet:" if output.startswith("mypy") else ""


def generate(target: Path = GENERATED) -> None:
    """Write everything that is made from the .proto files below `target`."""
    package = target / "hotline" / "v1"
    package.mkdir(parents=True, exist_ok=True)
    outputs = ("python", "mypy", "grpc_python", "mypy_grpc")
    plugins = (
        f"--plugin=protoc-gen-{name}={BIN / f'protoc-gen-{name}'}" for name in ("mypy", "mypy_grpc")
    )
    _protoc(*plugins, *(f"--{output}_out={_quiet(output)}{target}" for output in outputs))
    _protoc("--include_imports", f"--descriptor_set_out={target / DESCRIPTOR}")
    for folder in (package.parent, package):
        (folder / "__init__.py").write_text('"""Generated from protos/hotline; never edited."""\n')
        (folder / "py.typed").touch()


def check() -> None:
    """Exit with 1 where the checked-in code is stale."""
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        fresh = {path.relative_to(folder) for path in Path(folder).rglob("*") if path.is_file()}
        stored = {
            path.relative_to(GENERATED)
            for path in GENERATED.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        stale = sorted(
            str(path)
            for path in fresh | stored
            if path not in fresh & stored
            or not filecmp.cmp(Path(folder) / path, GENERATED / path, shallow=False)
        )
    if stale:
        sys.exit(f"protos/gen is stale, run `make protos`: {', '.join(stale)}")


def lint() -> None:
    """Run buf on an image with comments; offline, since protoc resolves the google imports."""
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder) / "hotline.binpb"
        _protoc("--include_imports", "--include_source_info", f"--descriptor_set_out={image}")
        rules = ["--config", str(PROTOS / "buf.yaml"), "--path", "hotline/v1"]
        subprocess.run([BIN / "buf", "lint", image, *rules], check=True, timeout=60)
        against = ["--against", str(BASELINE)]
        subprocess.run([BIN / "buf", "breaking", image, *rules, *against], check=True, timeout=60)


def baseline() -> None:
    """Accept the contract as it is now as the one to stay compatible with."""
    shutil.copyfile(GENERATED / DESCRIPTOR, BASELINE)


if __name__ == "__main__":
    commands = {"generate": generate, "check": check, "lint": lint, "baseline": baseline}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]]()
