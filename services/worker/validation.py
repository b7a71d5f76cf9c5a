"""Every check of a generation before an engine sees it.

An engine trusts its caller: ids out of the vocabulary, ranges that miss their placeholders, grids that disagree with
the pixels or numbers that are not numbers end it, or give a wrong answer without a word.
"""

from collections.abc import Sequence
from string import ascii_letters, digits
from typing import Any

from services.runtime.errors import ContextLengthError, InvalidArgumentError, UnimplementedError
from services.runtime.sampling_ranges import (
    LOGIT_BIASES,
    MAX_LOGIT_BIASES,
    MAX_STOP_TOKENS,
    PRIORITIES,
    SAMPLING_RANGES,
)
from services.runtime.structured_output import check_choices, check_text
from services.worker.engine import Constraint, Grid, Placement, Sampling
from services.worker.limits import MAX_ID_LENGTH, MAX_SALT_BYTES, MAX_TRACE_KEY_BYTES, Limits
from services.worker.model import ImageGeometry
from services.worker.moved import check_moved
from services.worker.request import GenerateRequest, SamplingRequest

_INTEGERS = ("top_k", "seed", "min_tokens", "logprobs", "n")
_ID_CHARACTERS = frozenset(ascii_letters + digits + "._:-")


def check(request: GenerateRequest, limits: Limits) -> Sampling:
    """Raises for the first thing wrong with a request; returns its sampling with the room worked out.

    Raises:
        InvalidArgumentError: names field, value and limit.
        ContextLengthError: the prompt leaves no room for an answer.
        UnimplementedError: adapters, in this version.
    """
    check_generation_id(request.generation_id)
    if request.adapter:
        raise UnimplementedError("an adapter", field="adapter")
    _check_size("cache_salt", request.cache_salt, MAX_SALT_BYTES)
    _check_size("trace_key", request.trace_key, MAX_TRACE_KEY_BYTES)
    if not PRIORITIES.holds(request.priority):
        raise InvalidArgumentError("priority", request.priority, str(PRIORITIES))
    _check_prompt(request.prompt_token_ids, limits)
    _check_placements(request, limits)
    room = limits.context_tokens - len(request.prompt_token_ids)
    size = limits.model.vocabulary_size
    sampling = _sampling(request.sampling, size, room)
    check_moved(request.output_token_ids, sampling, room, size, limits.model.placeholder_token_ids)
    return sampling


def check_generation_id(generation_id: str) -> None:
    """Raises InvalidArgumentError unless it is 1 to 128 characters of [A-Za-z0-9._:-]."""
    if not (0 < len(generation_id) <= MAX_ID_LENGTH and _ID_CHARACTERS.issuperset(generation_id)):
        raise InvalidArgumentError(
            "generation_id", generation_id, f"1 to {MAX_ID_LENGTH} characters of [A-Za-z0-9._:-]"
        )


def grid_problem(grid: Grid, geometry: ImageGeometry) -> str | None:
    """What a grid would have to be, or None where it is right."""
    merge = geometry.merge_size
    if grid.t != 1:
        return "a grid with t = 1"
    if grid.h < merge or grid.w < merge or grid.h % merge or grid.w % merge:
        return f"a grid whose h and w are positive multiples of {merge}"
    if geometry.tokens(grid) > geometry.max_tokens:
        return f"a grid of at most {geometry.max_tokens} tokens"
    return None


def _check_size(field: str, value: str, limit_bytes: int) -> None:
    if len(value.encode()) > limit_bytes:
        raise InvalidArgumentError(field, value, f"at most {limit_bytes} bytes of UTF-8")


def _check_prompt(ids: Sequence[int], limits: Limits) -> None:
    if not ids:
        raise InvalidArgumentError("prompt_token_ids", [], "at least 1 id")
    if len(ids) >= limits.context_tokens:
        raise ContextLengthError(len(ids), limits.context_tokens)
    size = limits.model.vocabulary_size
    if max(ids) >= size:
        index, bad = next((i, token) for i, token in enumerate(ids) if token >= size)
        raise InvalidArgumentError(
            f"prompt_token_ids[{index}]", bad, f"below the vocabulary's size, {size}"
        )


def _check_placements(request: GenerateRequest, limits: Limits) -> None:
    ids, placements = request.prompt_token_ids, request.placements
    if len(placements) > limits.max_images:
        raise InvalidArgumentError(
            "features", f"{len(placements)} images", f"at most {limits.max_images} images"
        )
    end = 0
    for index, placement in enumerate(placements):
        field = f"features[{index}]"
        _check_placement(field, placement, ids, end, limits)
        end = placement.offset + placement.length
    covered = sum(placement.length for placement in placements)
    placeholders = limits.model.placeholder_token_ids
    count = sum(token in placeholders for token in ids)
    if count != covered:
        raise InvalidArgumentError(
            "features",
            f"{covered} placeholder tokens covered",
            f"{count}, as many as in the prompt",
        )


def _check_placement(
    field: str, placement: Placement, ids: Sequence[int], end: int, limits: Limits
) -> None:
    geometry = limits.images
    if geometry is None or placement.modality != "IMAGE":
        raise InvalidArgumentError(f"{field}.modality", placement.modality, "MODALITY_IMAGE")
    if len(placement.digest) != 32:
        raise InvalidArgumentError(f"{field}.feature_digest", placement.digest.hex(), "32 bytes")
    if problem := grid_problem(placement.grid, geometry):
        raise InvalidArgumentError(f"{field}.grid", tuple(placement.grid), problem)
    wanted = geometry.tokens(placement.grid)
    if placement.length != wanted:
        raise InvalidArgumentError(
            f"{field}.length", placement.length, f"{wanted}, the tokens of its grid"
        )
    if placement.offset < end or placement.offset + placement.length > len(ids):
        raise InvalidArgumentError(
            f"{field}.offset",
            placement.offset,
            f"from {end} to {len(ids) - placement.length}: inside the prompt, after the one before",
        )
    here = ids[placement.offset : placement.offset + placement.length]
    for position, token in enumerate(here, placement.offset):
        if token != limits.model.image_token_id:
            raise InvalidArgumentError(
                f"prompt_token_ids[{position}]",
                token,
                f"{limits.model.image_token_id}, the image's placeholder, as {field} says",
            )


def _sampling(request: SamplingRequest, vocabulary_size: int, room: int) -> Sampling:
    numbers = dict(request.numbers)
    for name, value in numbers.items():
        allowed = SAMPLING_RANGES.get(name)
        if allowed is not None and not allowed.holds(value):
            raise InvalidArgumentError(f"sampling.{name}", value, str(allowed))
    top_k = numbers.get("top_k", 0)
    if not -1 <= top_k <= vocabulary_size:
        raise InvalidArgumentError(
            "sampling.top_k", top_k, f"1 to {vocabulary_size}, or 0 or -1 for no limit"
        )
    asked = numbers.pop("max_tokens", room)
    if asked < 1:
        raise InvalidArgumentError("sampling.max_tokens", asked, "at least 1")
    least = numbers.get("min_tokens", 0)
    if least > asked and "max_tokens" in request.numbers:
        raise InvalidArgumentError("sampling.min_tokens", least, f"at most max_tokens, {asked}")
    numbers["min_tokens"] = min(least, room)
    if request.stop:
        raise InvalidArgumentError(
            "sampling.stop",
            request.stop[0],
            "empty: a worker knows no text; stop_token_ids it knows",
        )
    _check_ids("sampling.stop_token_ids", request.stop_token_ids, MAX_STOP_TOKENS, vocabulary_size)
    _check_ids("sampling.logit_bias", list(request.logit_bias), MAX_LOGIT_BIASES, vocabulary_size)
    for token, bias in request.logit_bias.items():
        if not LOGIT_BIASES.holds(bias):
            raise InvalidArgumentError(f"sampling.logit_bias[{token}]", bias, str(LOGIT_BIASES))
    if request.constraint is not None:
        _check_constraint(request.constraint)
    fields: dict[str, Any] = {
        name: int(value) if name in _INTEGERS else value for name, value in numbers.items()
    }
    return Sampling(
        max_tokens=int(min(asked, room)),
        stop_token_ids=tuple(request.stop_token_ids),
        ignore_eos=request.ignore_eos,
        logit_bias=dict(request.logit_bias),
        constraint=request.constraint,
        **fields,
    )


def _check_ids(field: str, ids: Sequence[int], count_limit: int, vocabulary_size: int) -> None:
    if len(ids) > count_limit:
        raise InvalidArgumentError(field, f"{len(ids)} entries", f"at most {count_limit}")
    for token in ids:
        if token >= vocabulary_size:
            raise InvalidArgumentError(
                field, token, f"ids below the vocabulary's size, {vocabulary_size}"
            )


def _check_constraint(constraint: Constraint) -> None:
    field = f"sampling.structured_output.{constraint.kind}"
    if not constraint.kind:
        raise InvalidArgumentError(
            "sampling.structured_output",
            "nothing",
            "exactly one of json_object (true), json_schema, regex, choice and grammar",
        )
    if constraint.kind == "choice":
        check_choices(f"{field}.values", constraint.choices)
    elif constraint.kind != "json_object":
        check_text(field, constraint.kind, constraint.text)
