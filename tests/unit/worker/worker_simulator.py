"""Simulators on a clock of the test's own, and what is asked of them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from itertools import pairwise
from typing import Any

from worker_calls import MODEL

from services.worker.engine import (
    FeatureTensor,
    Grid,
    Job,
    PlacedFeature,
    Placement,
    Prompt,
    Sampling,
    Started,
    Step,
    Tokens,
)
from services.worker.sim import SimConfig, SimEngine
from services.worker.sim_costs import SimCosts, SimLimits
from services.worker.sim_faults import SimFaults
from services.worker.sim_tokens import trace_token

LIMIT_S = 10.0
"""Liveness bound of every wait."""


class Time:
    """Sleeping moves the clock, and lets others run meanwhile; `lag_s` more than asked."""

    def __init__(self, lag_s: float = 0.0) -> None:
        self.now, self.lag_s = 0.0, lag_s

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        for _ in range(6):  # whoever was told of a token may take it, and begin something else
            await asyncio.sleep(0)
        self.now += seconds + self.lag_s


def sim_config(**fields: Any) -> SimConfig:
    """100 ms a step and 10 ms for each sequence in it, 100 prompt tokens a second, 1 s an image; 4 sequences, 100
    blocks of 4 tokens. Fields of costs and limits may be given by their names.
    """
    costs = SimCosts(0.1, 0.01, 100.0, 1.0)
    limits = SimLimits(sequences=4, batched_tokens=64, block_tokens=4, blocks=100)
    of_costs = {name: fields.pop(name) for name in tuple(fields) if hasattr(costs, name)}
    of_limits = {name: fields.pop(name) for name in tuple(fields) if hasattr(limits, name)}
    fields.setdefault("output_tokens", 50)
    return SimConfig(replace(costs, **of_costs), replace(limits, **of_limits), **fields)


async def simulator(time: Time, faults: dict[str, Any] | None = None, **fields: Any) -> SimEngine:
    """A started one."""
    config = sim_config(**fields, faults=SimFaults(**(faults or {})))
    engine = SimEngine(MODEL, config, time.clock, time.sleep)
    await engine.start()
    return engine


def job(
    name: str = "g",
    ids: Any = 10,
    max_tokens: int = 4,
    priority: int = 0,
    salt: str = "",
    features: tuple[PlacedFeature, ...] = (),
    **sampling: Any,
) -> Job:
    """`ids`: the prompt, or only its length."""
    prompt = Prompt([5] * ids if isinstance(ids, int) else ids, features, salt)
    return Job(name, prompt, Sampling(max_tokens, **sampling), priority, trace_key=name)


def feature(digest: int, offset: int, length: int) -> PlacedFeature:
    """An image whose pixels nobody reads."""
    grid, name = Grid(1, 2, 2 * length), bytes([digest]) * 32
    placement = Placement(name, "IMAGE", offset, length, grid)
    return PlacedFeature(placement, FeatureTensor(name, grid, (4 * length, 1), memoryview(b"")))


def trace(key: str, count: int, choice_index: int = 0) -> list[int]:
    """The first ids of a key."""
    return [trace_token(key, choice_index, p, MODEL.ordinary_ids) for p in range(count)]


async def run(engine: SimEngine, job: Job) -> list[Step]:
    """A whole generation."""
    async with asyncio.timeout(LIMIT_S), aclosing(engine.generate(job)) as steps:
        return [step async for step in steps]


async def run_timed(engine: SimEngine, job: Job, time: Time) -> list[tuple[float, Step]]:
    """A whole generation, and when each step came."""
    async with asyncio.timeout(LIMIT_S), aclosing(engine.generate(job)) as steps:
        return [(round(time.now, 6), step) async for step in steps]


async def rest(steps: AsyncGenerator[Step, None]) -> list[Step]:
    """What is left of a generation."""
    async with asyncio.timeout(LIMIT_S):
        return [step async for step in steps]


def gaps(steps: list[tuple[float, Step]]) -> list[float]:
    """The times between pieces of output."""
    times = [when for when, step in steps if isinstance(step, Tokens)]
    return [later - earlier for earlier, later in pairwise(times)]


def ids_of(steps: list[Step], choice_index: int = 0) -> list[int]:
    """The output; fails where a piece is missing, doubled or out of order."""
    ids: list[int] = []
    for step in steps:
        if isinstance(step, Tokens) and step.choice_index == choice_index:
            assert step.position == len(ids)
            ids.extend(step.token_ids)
    return ids


def cached(steps: list[Step]) -> int:
    """Prompt tokens found in the cache."""
    started = steps[0]
    assert isinstance(started, Started)
    return started.cached_tokens
