"""docs/openai.md, the code's table of parameters, and the contract tell the same."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from hotline.v1 import conversation_pb2, inference_pb2, sampling_pb2

from services.gateway.parameter import Parameter, Route
from services.gateway.parameter_table import TABLE, of_route

ROOT = Path(__file__).resolve().parents[2]
NAMES = [f"{parameter.name} of {parameter.routes[0]}" for parameter in TABLE]


@pytest.fixture(scope="module")
def page() -> ModuleType:
    """deploy/setup/parameter_page.py, which is no package."""
    path = ROOT / "deploy" / "setup" / "parameter_page.py"
    spec = importlib.util.spec_from_file_location("parameter_page", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_the_table_as_it_is(page: ModuleType):
    text = page.PAGE.read_text("utf-8")
    assert text == page.renewed(text), "stale: python deploy/setup/parameter_page.py"


def test_prose_around_the_table_stays(page: ModuleType):
    stale = f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n"
    assert page.renewed(stale) == f"before\n{page.table()}\nafter\n"


def test_a_page_without_a_table_is_not_touched(page: ModuleType):
    with pytest.raises(ValueError, match="marks"):
        page.renewed("no table here")


def test_no_cell_breaks_the_table(page: ModuleType):
    rows = page.table().splitlines()[1:-1]
    assert len(rows) == len(TABLE) + 2
    assert {row.count("|") for row in rows} == {6}


@pytest.mark.parametrize("route", list(Route))
def test_a_route_has_each_name_once(route: Route):
    names = [parameter.name for parameter in of_route(route)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("parameter", TABLE, ids=NAMES)
def test_a_parameter_goes_to_a_field_of_the_contract_or_says_that_nothing_uses_it(
    parameter: Parameter,
):
    area, _, name = parameter.goes_to.partition(".")
    messages = {
        "sampling": sampling_pb2.SamplingParameters,
        "render": conversation_pb2.RenderOptions,
        "prompt": inference_pb2.RawPrompt,
    }
    if area in messages:
        assert name in messages[area].DESCRIPTOR.fields_by_name
    else:
        assert area in ("", "answer", *inference_pb2.GenerateRequest.DESCRIPTOR.fields_by_name)


def test_every_field_of_sampling_has_a_parameter_on_each_route():
    fields = {
        f"sampling.{name}" for name in sampling_pb2.SamplingParameters.DESCRIPTOR.fields_by_name
    }
    for route in Route:
        assert fields <= {parameter.goes_to for parameter in of_route(route)}, route


@pytest.mark.parametrize("parameter", TABLE, ids=NAMES)
def test_what_is_told_of_a_parameter_is_whole_sentences(parameter: Parameter):
    assert parameter.text.endswith(".")
    assert parameter.kind.words
    assert parameter.default


@pytest.mark.parametrize("parameter", [p for p in TABLE if p.replaces], ids=lambda p: p.name)
def test_a_newer_name_stands_for_the_same_as_the_older_one(parameter: Parameter):
    [older] = [p for p in of_route(parameter.routes[0]) if p.name == parameter.replaces]
    assert (older.kind, older.goes_to) == (parameter.kind, parameter.goes_to)
