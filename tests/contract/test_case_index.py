"""docs/cases.md names tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.findall(
    r"`([a-z0-9_/]+\.py)::(test_[A-Za-z0-9_]+)`", (ROOT / "docs/cases.md").read_text()
)


@pytest.mark.parametrize(("file", "test"), NAMED, ids=[f"{file}::{test}" for file, test in NAMED])
def test_every_test_that_the_index_names_is_there(file: str, test: str):
    source = (ROOT / "tests" / file).read_text(encoding="utf-8")
    assert re.search(rf"^(async )?def {test}\(", source, re.MULTILINE)


def test_every_case_is_in_the_index_or_said_to_come_later():
    text = (ROOT / "docs/cases.md").read_text(encoding="utf-8")
    listed = {int(number) for number in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    assert set(range(1, 45)) - listed == {32, 39}
