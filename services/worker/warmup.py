"""What a first request would pay for, paid before SERVING."""

import asyncio
from contextlib import aclosing

from services.runtime.digest import feature_digest
from services.runtime.logs import get_logger
from services.worker.engine import (
    Constraint,
    Engine,
    FeatureTensor,
    Job,
    PlacedFeature,
    Placement,
    Prompt,
    Sampling,
)
from services.worker.limits import Limits

_log = get_logger()

SALT = "hotline-warm-up"
"""No request has it, so that nothing of a warm-up is ever found in a cache."""
TEXT_TOKENS, OUTPUT_TOKENS = 48, 8
LONGEST_LIMIT_S = 20.0
"""The longest prompt is given up after so long: on a slow machine it costs more than it saves."""
SCHEMA = '{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}'
CONSTRAINTS = (Constraint("json_schema", SCHEMA), Constraint("regex", "(yes|no)"))


async def warm_up(engine: Engine, limits: Limits) -> None:
    """Texts together and with log-probabilities, held to a form, the largest image, the longest prompt.

    The first log-probabilities and the first schema cost seconds: code is loaded and the vocabulary prepared.
    Raises what the engine raises.
    """
    text = Prompt(_filler(limits, min(TEXT_TOKENS, limits.context_tokens - 1)), cache_salt=SALT)
    async with asyncio.TaskGroup() as group:
        group.create_task(_run(engine, "warm-up-text", text, limits))
        group.create_task(_run(engine, "warm-up-logprobs", text, limits, logprobs=1))
    # A simulator keeps no form, and refuses them all.
    for constraint in CONSTRAINTS if engine.name != "sim" else ():
        await _run(engine, f"warm-up-{constraint.kind}", text, limits, constraint=constraint)
    image = _image_prompt(limits)
    if image is not None:
        await _run(engine, "warm-up-image", image, limits)
    if engine.name != "sim":  # which would only let the time pass that such a prompt takes
        await _longest(engine, limits)


async def _longest(engine: Engine, limits: Limits) -> None:
    prompt = Prompt(_filler(limits, max(1, limits.context_tokens - OUTPUT_TOKENS)), cache_salt=SALT)
    try:
        async with asyncio.timeout(LONGEST_LIMIT_S):
            await _run(engine, "warm-up-longest", prompt, limits)
    except TimeoutError:
        _log.warning("warm-up without the longest prompt", limit_s=LONGEST_LIMIT_S)


async def _run(
    engine: Engine,
    name: str,
    prompt: Prompt,
    limits: Limits,
    logprobs: int | None = None,
    constraint: Constraint | None = None,
) -> None:
    sampling = Sampling(
        max_tokens=min(OUTPUT_TOKENS, limits.context_tokens - len(prompt.token_ids)),
        temperature=0.5,
        seed=0,
        ignore_eos=constraint is None,  # a form that is complete can only end
        logprobs=logprobs,
        constraint=constraint,
    )
    async with aclosing(engine.generate(Job(name, prompt, sampling, trace_key=name))) as steps:
        async for _ in steps:
            pass


def _filler(limits: Limits, count: int) -> list[int]:
    ids = limits.model.ordinary_ids
    return [ids[index % len(ids)] for index in range(count)]


def _image_prompt(limits: Limits) -> Prompt | None:
    geometry, token = limits.images, limits.model.image_token_id
    if geometry is None or token is None:
        return None
    grid = geometry.largest_grid()
    length = geometry.tokens(grid)
    if length + 4 > limits.context_tokens:
        return None  # such an image has no room here, so no request has it
    shape = (grid.patches, geometry.patch_bytes)
    data = memoryview(bytearray(grid.patches * geometry.patch_bytes))
    tensor = FeatureTensor(feature_digest(1, 1, shape, grid, data), grid, shape, data)
    placement = Placement(tensor.digest, "IMAGE", 1, length, grid)
    filler = _filler(limits, 2)
    return Prompt(
        [filler[0], *[token] * length, filler[1]], (PlacedFeature(placement, tensor),), SALT
    )
