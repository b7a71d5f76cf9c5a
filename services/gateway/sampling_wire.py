"""hotline.v1.SamplingParameters: made of a REST request's parameters, and checked where a native client made them."""

from typing import Any

from hotline.v1 import sampling_pb2

from services.gateway.constraints import Constraint
from services.gateway.parameter_body import Parameters
from services.gateway.parameter_kinds import UINT32_MAX
from services.gateway.parameter_rules import constraint
from services.gateway.parameters import check_logit_bias, check_ranges, check_stops
from services.runtime.errors import InvalidArgumentError
from services.runtime.sampling_ranges import MAX_STOP_TOKENS, SAMPLING_RANGES
from services.runtime.structured_output import check_choices, check_text

_AREA = "sampling."
_UNSIGNED = ("max_tokens", "min_tokens")
"""Numbers without an upper limit of their own."""


def sampling_parameters(given: Parameters) -> sampling_pb2.SamplingParameters:
    """Every parameter that goes to `sampling.`; they have been checked, also against each other."""
    sampling = sampling_pb2.SamplingParameters()
    for one in given:
        name = one.parameter.goes_to.removeprefix(_AREA)
        if name != one.parameter.goes_to and name not in ("logprobs", "structured_output"):
            _put(sampling, name, one.value)
    logprobs = _logprobs(given)
    if logprobs is not None:
        sampling.logprobs = logprobs
    form = constraint(given)
    if form is not None:
        sampling.structured_output.CopyFrom(_structured_output(form))
    return sampling


def _put(sampling: sampling_pb2.SamplingParameters, name: str, value: Any) -> None:
    if isinstance(value, list):
        getattr(sampling, name).extend(value)
    elif isinstance(value, dict):
        getattr(sampling, name).update(value)
    else:
        setattr(sampling, name, min(value, UINT32_MAX) if name in _UNSIGNED else value)


def _logprobs(given: Parameters) -> int | None:
    """Chat has a switch and a count of its own, text completions have the count alone."""
    asked = given.value("logprobs")
    if isinstance(asked, bool):
        return given.value("top_logprobs", 0) if asked else None
    count: int | None = asked
    return count


def _structured_output(form: Constraint) -> sampling_pb2.StructuredOutput:
    if form.kind == "json_object":
        return sampling_pb2.StructuredOutput(json_object=True)
    if form.kind == "choice":
        choices = sampling_pb2.ChoiceList(values=form.choices)
        return sampling_pb2.StructuredOutput(choice=choices)
    output = sampling_pb2.StructuredOutput()
    setattr(output, form.kind, form.text)
    return output


def field_names(given: Parameters) -> dict[str, str]:
    """What the contract calls a field -> what the client of a REST request called it."""
    names = {one.parameter.goes_to: one.field for one in given if one.parameter.goes_to}
    # The tokenizer sees RenderOptions alone.
    names |= {
        ours.removeprefix("render."): field
        for ours, field in names.items()
        if ours.startswith("render.")
    }
    form = constraint(given)
    if form is not None:
        place = f"{_AREA}structured_output.{form.kind}"
        field = form.made_of or form.field
        names |= {place: field, f"{place}.values": field}
    return names


def check_sampling(sampling: sampling_pb2.SamplingParameters) -> None:
    """Raises InvalidArgumentError naming `sampling.<field>`."""
    values = {name: getattr(sampling, name) for name in SAMPLING_RANGES if sampling.HasField(name)}  # type: ignore[arg-type]
    check_ranges(values, prefix=_AREA)
    check_stops(f"{_AREA}stop", sampling.stop)
    check_logit_bias(f"{_AREA}logit_bias", sampling.logit_bias)
    ids = len(sampling.stop_token_ids)
    if ids > MAX_STOP_TOKENS:
        raise InvalidArgumentError(
            f"{_AREA}stop_token_ids", f"{ids} ids", f"at most {MAX_STOP_TOKENS} ids"
        )
    if sampling.HasField("structured_output"):
        _check_structured_output(sampling.structured_output)


def _check_structured_output(output: sampling_pb2.StructuredOutput) -> None:
    place = f"{_AREA}structured_output"
    kind = output.WhichOneof("constraint")
    if kind is None or (kind == "json_object" and not output.json_object):
        raise InvalidArgumentError(
            place,
            "nothing",
            "exactly one of json_object (true), json_schema, regex, choice and grammar",
        )
    if kind == "choice":
        check_choices(f"{place}.choice.values", output.choice.values)
    elif kind != "json_object":
        check_text(f"{place}.{kind}", kind, getattr(output, kind))


def follows_from_ids(sampling: sampling_pb2.SamplingParameters) -> bool:
    """Whether what is sampled next depends on the ids so far alone, wherever they were sampled.

    A seeded sampler counts its steps, a grammar is somewhere in its rules, and these penalties count output apart from
    prompt; several choices would have to move one by one.
    """
    return not (
        sampling.HasField("seed")
        or sampling.HasField("structured_output")
        or sampling.presence_penalty
        or sampling.frequency_penalty
        or sampling.n > 1
    )


def check_vocabulary(sampling: sampling_pb2.SamplingParameters, size: int) -> None:
    """Raises InvalidArgumentError for what names tokens beyond the model's vocabulary."""
    if sampling.top_k > size:
        limit = f"1 to {size}, or 0 or -1 for no limit"
        raise InvalidArgumentError(f"{_AREA}top_k", sampling.top_k, limit)
    for name, ids in (
        ("logit_bias", sampling.logit_bias),
        ("stop_token_ids", sampling.stop_token_ids),
    ):
        beyond = next((token for token in ids if token >= size), None)
        if beyond is not None:
            limit = f"ids below the vocabulary's size, {size}"
            raise InvalidArgumentError(f"{_AREA}{name}", beyond, limit)
