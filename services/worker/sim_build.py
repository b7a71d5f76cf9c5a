"""Settings -> the simulator: the one place where its settings are mapped."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from services.worker.model import ModelFacts
from services.worker.settings import WorkerSettings
from services.worker.sim import SimConfig, SimEngine
from services.worker.sim_costs import PROFILES, SimCosts, SimLimits

BATCHED_TOKENS = 8192
"""max_num_batched_tokens where it is left to the engine."""
BLOCK_TOKENS = 16
"""block_size where it is left to the engine."""


def create_simulator(
    settings: WorkerSettings,
    facts: ModelFacts,
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> SimEngine:
    """The simulator, not yet started. Raises ValueError where one context has no room in its KV."""
    config = SimConfig(
        costs=_costs(settings),
        limits=_limits(settings, min(settings.max_model_len, facts.context_tokens)),
        output_tokens=settings.sim_output_tokens,
        synchronous=settings.sim_synchronous,
        faults=settings.sim_fault,
    )
    return SimEngine(facts, config, clock, sleep)


def _costs(settings: WorkerSettings) -> SimCosts:
    def seconds(value_ms: float | None) -> float | None:
        return None if value_ms is None else value_ms / 1000

    own = {
        "step_s": seconds(settings.sim_step_ms),
        "per_sequence_s": seconds(settings.sim_step_per_sequence_ms),
        "prefill_tokens_per_s": settings.sim_prefill_tokens_per_s,
        "image_s": seconds(settings.sim_image_ms),
    }
    chosen = {name: value for name, value in own.items() if value is not None}
    return replace(PROFILES[settings.sim_profile].costs, **chosen)


def _limits(settings: WorkerSettings, context_tokens: int) -> SimLimits:
    kv_tokens = settings.sim_kv_tokens or PROFILES[settings.sim_profile].kv_tokens
    if kv_tokens < context_tokens:
        raise ValueError(
            f"HOTLINE_WORKER_SIM_KV_TOKENS: {kv_tokens} is too few for one context of {context_tokens} tokens"
        )
    block_tokens = settings.block_size or BLOCK_TOKENS
    return SimLimits(
        sequences=settings.max_num_seqs,
        batched_tokens=settings.max_num_batched_tokens or BATCHED_TOKENS,
        block_tokens=block_tokens,
        blocks=-(-kv_tokens // block_tokens),
        prefix_caching=settings.enable_prefix_caching,
    )
