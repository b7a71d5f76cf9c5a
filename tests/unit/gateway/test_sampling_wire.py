"""What a native client's sampling parameters are refused for, each by its path; and which limits the worker shares."""

import json
import math
from typing import Any

import pytest
from hotline.v1 import sampling_pb2

from services.gateway.completion_request import CompletionRequest
from services.gateway.json_body import parse
from services.gateway.parameter_body import read_parameters
from services.gateway.sampling_wire import check_sampling, sampling_parameters
from services.runtime.errors import InvalidArgumentError
from services.runtime.sampling_ranges import SAMPLING_RANGES


def sampling(**fields: Any) -> sampling_pb2.SamplingParameters:
    return sampling_pb2.SamplingParameters(**fields)


def structured(**fields: Any) -> sampling_pb2.SamplingParameters:
    return sampling(structured_output=sampling_pb2.StructuredOutput(**fields))


def choices(*values: str) -> sampling_pb2.SamplingParameters:
    return structured(choice=sampling_pb2.ChoiceList(values=values))


FORM = "structured_output"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        pytest.param(sampling(temperature=math.nan), "temperature", id="NaN"),
        pytest.param(sampling(top_p=math.inf), "top_p", id="infinity"),
        pytest.param(sampling(min_tokens=6, max_tokens=5), "min_tokens", id="min above max"),
        pytest.param(sampling(n=0), "n", id="n 0"),
        pytest.param(sampling(stop=["x"] * 17), "stop", id="17 stops"),
        pytest.param(sampling(stop=["x", ""]), "stop[1]", id="an empty stop"),
        pytest.param(sampling(stop_token_ids=[5] * 65), "stop_token_ids", id="65 stop tokens"),
        pytest.param(sampling(logit_bias={5: math.nan}), "logit_bias[5]", id="bias NaN"),
        pytest.param(structured(), FORM, id="no constraint"),
        pytest.param(structured(json_object=False), FORM, id="json_object false"),
        pytest.param(structured(regex=""), f"{FORM}.regex", id="empty regex"),
        pytest.param(structured(regex="é" * 2049), f"{FORM}.regex", id="regex above 4 KiB"),
        pytest.param(structured(grammar="x" * 8193), f"{FORM}.grammar", id="grammar above 8 KiB"),
        pytest.param(
            structured(json_schema='{"x":"' + "y" * 16384 + '"}'),
            f"{FORM}.json_schema",
            id="schema above 16 KiB",
        ),
        pytest.param(structured(json_schema="{"), f"{FORM}.json_schema", id="half a schema"),
        pytest.param(structured(json_schema="{} {}"), f"{FORM}.json_schema", id="two schemas"),
        pytest.param(structured(json_schema="true"), f"{FORM}.json_schema", id="no object"),
        pytest.param(
            structured(json_schema='{"a":[' * 16 + "[]" + "]}" * 16),
            f"{FORM}.json_schema",
            id="33 deep",
        ),
        pytest.param(
            structured(json_schema='{"a":' * 2_500), f"{FORM}.json_schema", id="ever deeper"
        ),
        pytest.param(choices(), f"{FORM}.choice.values", id="no choice"),
        pytest.param(choices(*["x"] * 257), f"{FORM}.choice.values", id="257 choices"),
        pytest.param(choices("x", ""), f"{FORM}.choice.values[1]", id="an empty choice"),
        pytest.param(choices("é" * 513), f"{FORM}.choice.values[0]", id="a choice above 1 KiB"),
    ],
)
def test_a_bad_parameter_is_refused_by_its_path(given, field):
    with pytest.raises(InvalidArgumentError) as refused:
        check_sampling(given)
    assert refused.value.field == f"sampling.{field}"
    assert refused.value.metadata["limit"]


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(sampling(), id="nothing"),
        pytest.param(structured(json_object=True), id="json_object"),
        pytest.param(structured(regex="x" * 4096), id="regex of 4 KiB"),
        pytest.param(structured(grammar="x" * 8192), id="grammar of 8 KiB"),
        pytest.param(
            structured(json_schema='{"x":"' + "y" * (16384 - 8) + '"}'), id="schema of 16 KiB"
        ),
        pytest.param(structured(json_schema='{"a":[' * 16 + "1" + "]}" * 16), id="32 deep"),
        pytest.param(choices(*["x" * 1024] * 256), id="256 choices of 1 KiB"),
        pytest.param(sampling(stop=["x" * 256] * 16, stop_token_ids=[5] * 64), id="most stops"),
    ],
)
def test_what_is_at_its_limit_passes(given):
    check_sampling(given)


@pytest.mark.parametrize("name", sorted(SAMPLING_RANGES))
def test_every_number_is_held_to_its_range(name):
    allowed = SAMPLING_RANGES[name]
    for beyond in (allowed.low - 1, allowed.low if allowed.open_low else None, allowed.high + 1):
        try:
            given = sampling(**{name: beyond})
        except (ValueError, TypeError):  # the wire itself has no such number
            continue
        if not given.HasField(name):
            continue
        with pytest.raises(InvalidArgumentError) as refused:
            check_sampling(given)
        assert refused.value.field == f"sampling.{name}"


def completion(**fields: Any) -> sampling_pb2.SamplingParameters:
    body = parse(json.dumps({"prompt": "x", **fields}).encode(), CompletionRequest)
    return sampling_parameters(read_parameters(body))


def test_text_completions_take_the_parameters_that_chat_takes():
    fields = {"temperature": 0.5, "stop": "x", "max_tokens": 7, "extra_body": {"top_k": 3}}
    given = completion(**fields, guided_choice=["a", "b"])
    assert (given.temperature, list(given.stop), given.max_tokens, given.top_k) == (
        0.5,
        ["x"],
        7,
        3,
    )
    assert list(given.structured_output.choice.values) == ["a", "b"]


def test_text_completions_count_their_log_probabilities_and_chat_switches_them():
    assert completion(logprobs=3).logprobs == 3
    assert completion(logprobs=0).HasField("logprobs")
    with pytest.raises(InvalidArgumentError, match="logprobs: True is not allowed"):
        completion(logprobs=True)


def test_what_only_chat_has_is_an_unknown_field_of_a_text_completion():
    assert completion(max_completion_tokens="many", enable_thinking=5) == completion()
