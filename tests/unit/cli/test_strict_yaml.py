"""Keys that stand twice are an error; everything else is as PyYAML has it."""

import pytest
import yaml

from services.cli.strict_yaml import load_yaml


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("worker: {}\nmodel: {}\nworker: {}\n", 3, id="top"),
        pytest.param("worker:\n  dtype: half\n  dtype: int8\n", 3, id="section"),
        pytest.param("worker: {a: 1, b: 2, a: 3}\n", 1, id="flow"),
        pytest.param("list:\n  - {a: 1, a: 2}\n", 2, id="in-a-list"),
    ],
)
def test_a_key_that_stands_twice_is_named_with_its_line(text, line):
    with pytest.raises(yaml.YAMLError, match=f"stands twice(.|\n)*line {line}, "):
        load_yaml(text)


def test_a_key_may_stand_in_several_mappings_and_be_merged():
    text = "base: &b {a: 1, c: 2}\nmore: {<<: *b, a: 3}\n"
    assert load_yaml(text) == {"base": {"a": 1, "c": 2}, "more": {"a": 3, "c": 2}}


def test_no_tag_makes_an_object():
    with pytest.raises(yaml.YAMLError):
        load_yaml("!!python/object/apply:os.getcwd []")
