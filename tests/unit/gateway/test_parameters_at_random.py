"""Random chat bodies: right ones give the parameters that they should, one wrong field is refused by its name."""

import json
import struct
from typing import Any

import pytest
from hotline.v1 import sampling_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parameter_values import BAD, CONSTRAINTS, GOOD

from services.gateway import openai_wire
from services.gateway.caller import Caller
from services.gateway.interfaces import GenerationRequest
from services.gateway.json_body import parse
from services.gateway.openai_request import ChatRequest
from services.gateway.parameter import Route
from services.gateway.parameter_body import read_parameters
from services.gateway.parameter_table import of_route
from services.gateway.sampling_wire import sampling_parameters
from services.runtime.errors import InvalidArgumentError, ServiceError

HI = {"messages": [{"role": "user", "content": "Hi"}]}
REPEATABLE = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
SAME_NAMES = [
    *("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty"),
    *("repetition_penalty", "seed", "n", "ignore_eos"),
]
NESTABLE = sorted(
    set(GOOD | CONSTRAINTS)
    - {"temperature", "top_p", "presence_penalty", "frequency_penalty", "seed", "stop", "n"}
    - {"max_tokens", "max_completion_tokens", "logprobs", "top_logprobs", "logit_bias", "tools"}
    - {"stream", "stream_options", "user", "response_format"}
    - {"tool_choice", "parallel_tool_calls"}
)


@st.composite
def bodies(draw: Any) -> dict[str, Any]:
    """A body that is right: of any parameters, at most one constraint, and what belongs together."""
    names = draw(st.sets(st.sampled_from(sorted(GOOD))))
    body = {name: draw(GOOD[name]) for name in sorted(names)}
    if draw(st.booleans()):
        name = draw(st.sampled_from(sorted(CONSTRAINTS)))
        body[name] = draw(CONSTRAINTS[name])
    if "stream_options" in body:
        body["stream"] = True
    if "top_logprobs" in body:
        body["logprobs"] = True
    return body


def generation(body: dict[str, Any]) -> GenerationRequest:
    chat = parse(json.dumps(HI | body).encode(), ChatRequest)
    return openai_wire.generation_request(chat, "g", "m", Caller("o"), 1.0)


def sampling(body: dict[str, Any]) -> sampling_pb2.SamplingParameters:
    return sampling_parameters(read_parameters(parse(json.dumps(HI | body).encode(), ChatRequest)))


def single(value: float) -> float:
    """As 32 bits hold it."""
    narrow: float = struct.unpack("f", struct.pack("f", value))[0]
    return narrow


def expected(body: dict[str, Any]) -> sampling_pb2.SamplingParameters:
    """The parameters that a body stands for, field by field."""
    wanted = sampling_pb2.SamplingParameters()
    for name in SAME_NAMES:
        if name in body:
            value = body[name]
            setattr(wanted, name, single(value) if isinstance(value, float) else value)
    for name in ("max_tokens", "max_completion_tokens", "min_tokens"):
        if name in body:
            field = name.replace("_completion", "")
            setattr(wanted, field, min(body[name], 2**32 - 1))
    stop = body.get("stop", [])
    wanted.stop.extend([stop] if isinstance(stop, str) else stop)
    wanted.stop_token_ids.extend(body.get("stop_token_ids", []))
    wanted.logit_bias.update({int(key): bias for key, bias in body.get("logit_bias", {}).items()})
    if body.get("logprobs"):
        wanted.logprobs = body.get("top_logprobs", 0)
    form(body, wanted)
    return wanted


def form(body: dict[str, Any], wanted: sampling_pb2.SamplingParameters) -> None:
    found = {name.removeprefix("guided_"): body[name] for name in body if "guided_" in name}
    found |= body.get("structured_outputs", {})
    match body.get("response_format"):
        case {"type": "json_object"}:
            found["json_object"] = True
        case {"json_schema": {"schema": schema}}:
            found["json"] = schema
    for name, value in found.items():
        if name == "json":
            wanted.structured_output.json_schema = json.dumps(value)
        elif name == "choice":
            wanted.structured_output.choice.values.extend(value)
        else:
            setattr(wanted.structured_output, name, value)


def test_values_are_made_of_every_parameter():
    names = {parameter.name for parameter in of_route(Route.CHAT)}
    assert names == set(GOOD | CONSTRAINTS) == set(BAD)
    assert set(NESTABLE) == {p.name for p in of_route(Route.CHAT) if p.is_nestable}


@REPEATABLE
@given(bodies())
def test_a_right_body_gives_the_sampling_parameters_that_it_should(body: dict[str, Any]):
    assert sampling(body) == expected(body)


@REPEATABLE
@given(bodies())
def test_what_is_not_openais_own_may_stand_in_a_nested_extra_body(body: dict[str, Any]):
    inner = {name: body.pop(name) for name in NESTABLE if name in body}
    assert sampling({**body, "extra_body": inner}) == expected(body | inner)


@REPEATABLE
@given(bodies())
def test_a_right_body_gives_the_generation_that_it_should(body: dict[str, Any]):
    request = generation(body)
    stop = body.get("stop", [])
    assert list(request.stop) == ([stop] if isinstance(stop, str) else stop)
    assert request.choice_count == body.get("n", 1)
    assert request.priority == body.get("priority", 0)
    assert request.ignore_eos == body.get("ignore_eos", False)
    assert request.split_reasoning == body.get("return_reasoning", False)
    asked = body.get("max_completion_tokens", body.get("max_tokens"))
    assert request.max_tokens == (None if asked is None else min(asked, 2**32 - 1))
    assert len(request.render_options.tools) == len(body.get("tools", []))


def refused_field(body: dict[str, Any]) -> str:
    with pytest.raises(InvalidArgumentError) as refused:
        generation(body)
    assert refused.value.metadata["limit"] not in ("", "valid")
    assert refused.value.message.startswith(f"{refused.value.field}: ")
    return refused.value.field


@REPEATABLE
@given(bodies(), st.data())
def test_one_wrong_field_is_refused_by_its_name(body: dict[str, Any], data: Any):
    name = data.draw(st.sampled_from(sorted(BAD)))
    field = refused_field({**body, name: data.draw(BAD[name])})
    assert field.partition("[")[0].partition(".")[0] == name


@REPEATABLE
@given(bodies(), st.data())
def test_one_wrong_field_of_a_nested_extra_body_is_refused_by_its_path(
    body: dict[str, Any], data: Any
):
    name = data.draw(st.sampled_from(NESTABLE))
    body.pop(name, None)
    field = refused_field({**body, "extra_body": {name: data.draw(BAD[name])}})
    assert field.partition("[")[0].startswith(f"extra_body.{name}")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4)
    ),
    max_leaves=8,
)


def refusal(body: bytes) -> ServiceError | None:
    """What is said of a body; None where it is taken."""
    try:
        chat = parse(body, ChatRequest)
        openai_wire.generation_request(chat, "g", "m", Caller("o"), 1.0)
    except ServiceError as error:
        return error
    return None


@REPEATABLE
@given(st.dictionaries(st.sampled_from([*BAD, "extra_body", "messages", "model"]), ANYTHING))
def test_nothing_in_a_body_is_another_error_than_one_of_ours(body: dict[str, Any]):
    error = refusal(json.dumps(HI | body).encode())
    assert error is None or isinstance(error, InvalidArgumentError)


@REPEATABLE
@given(st.binary(max_size=60) | ANYTHING.map(lambda value: json.dumps(value).encode()))
def test_no_bytes_are_another_error_than_a_refusal_of_a_field(body: bytes):
    error = refusal(body)
    assert isinstance(error, InvalidArgumentError)
    assert error.field
