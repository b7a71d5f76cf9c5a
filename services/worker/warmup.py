"""What a first request would pay for, paid before SERVING."""

import asyncio
from contextlib import aclosing

from services.runtime.digest import feature_digest
from services.worker.engine import (
    Engine,
    FeatureTensor,
    Job,
    PlacedFeature,
    Placement,
    Prompt,
    Sampling,
)
from services.worker.limits import Limits

SALT = "hotline-warm-up"
"""No request has it, so that nothing of a warm-up is ever found in a cache."""
TEXT_TOKENS, OUTPUT_TOKENS = 48, 8


async def warm_up(engine: Engine, limits: Limits) -> None:
    """Two texts together, one of them with log-probabilities; then the largest image. Raises what the engine raises."""
    count = min(TEXT_TOKENS, limits.context_tokens - 1)
    text = Prompt(_filler(limits, count), cache_salt=SALT)
    async with asyncio.TaskGroup() as group:
        group.create_task(_run(engine, "warm-up-0", text, limits))
        group.create_task(_run(engine, "warm-up-1", text, limits, logprobs=1))
    image = _image_prompt(limits)
    if image is not None:
        await _run(engine, "warm-up-2", image, limits)


async def _run(
    engine: Engine, name: str, prompt: Prompt, limits: Limits, logprobs: int | None = None
) -> None:
    sampling = Sampling(
        max_tokens=min(OUTPUT_TOKENS, limits.context_tokens - len(prompt.token_ids)),
        temperature=0.5,
        seed=0,
        ignore_eos=True,
        logprobs=logprobs,
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
