"""deploy/setup/set_up.py comes as far as its message on a Python that is too old, and the demo tells its time."""

import ast
import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

DEPLOY = Path(__file__).parents[3] / "deploy"
SET_UP = DEPLOY / "setup" / "set_up.py"

AS_AN_OLD_PYTHON = """
import collections.abc, runpy, sys
class Unsubscriptable:
    pass
for name in collections.abc.__all__:
    setattr(collections.abc, name, Unsubscriptable)
sys.version_info = (3, int(sys.argv[2]), 0, "final", 0)
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@pytest.mark.parametrize("minor", [6, 8, 10])
def test_an_old_python_is_told_what_is_needed(minor: int) -> None:
    command = [sys.executable, "-c", AS_AN_OLD_PYTHON, str(SET_UP), str(minor)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        f"error: this is Python 3.{minor}; 3.11 or newer is needed: make setup PYTHON=python3.11\n"
    )


def test_the_syntax_is_that_of_python_3_6() -> None:
    ast.parse(SET_UP.read_text(encoding="utf-8"), feature_version=(3, 6))


def test_no_annotation_needs_a_newer_python() -> None:
    annotations: list[ast.expr | None] = []
    for node in ast.walk(ast.parse(SET_UP.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            annotations.append(node.returns)
        elif isinstance(node, ast.arg | ast.AnnAssign):
            annotations.append(node.annotation)
    assert len(annotations) > 10
    new = [ast.unparse(a) for a in annotations if isinstance(a, ast.Subscript | ast.BinOp)]
    assert new == []


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, its stamp one of set-up that took 87 s and ended at 1000 s."""
    spec = spec_from_file_location("demo", DEPLOY / "demo" / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "demo", module)
    spec.loader.exec_module(module)
    stamp = tmp_path / "stamp"
    stamp.write_text("digest 87.2\n")
    os.utime(stamp, (1000, 1000))
    monkeypatch.setattr(module, "SET_UP_STAMP", stamp)
    return module


@pytest.mark.parametrize(
    ("make_start_s", "told"),
    [
        pytest.param(900.0, "87 s", id="by this make"),
        pytest.param(1001.0, "already done (87 s when it was made)", id="by an earlier one"),
        pytest.param(None, "already done (87 s when it was made)", id="no make now"),
    ],
)
def test_the_demo_tells_the_time_of_set_up_only_as_this_runs_where_it_is(
    demo: Any, monkeypatch: pytest.MonkeyPatch, make_start_s: float | None, told: str
) -> None:
    monkeypatch.setattr(demo, "make_start_s", lambda: make_start_s)
    assert demo.set_up_time() == told


def test_the_demo_knows_the_make_that_runs_it(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(DEPLOY / 'demo')!r}); "
        "import demo; print(demo.make_start_s() is not None)"
    )
    makefile = tmp_path / "Makefile"
    makefile.write_text(f'it:\n\t@{sys.executable} -c "{code}"\n')
    command = ["make", "-s", "-f", str(makefile), "it"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "True"


def test_the_rule_of_the_demos_table_is_as_long_as_its_longest_line(
    demo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "make_start_s", lambda: None)
    stack = demo.Stack(None, 0.0, loaded_s=1.0, ready_s=2.0)
    _, rule, *lines, last = demo.table(stack, {"text": demo.Answer(0.1, 0.2, 5)}).splitlines()
    assert rule == last == "-" * max(map(len, lines))
