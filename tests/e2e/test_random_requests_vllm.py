"""Random valid requests, REST and native mixed, on the real engine: the answers are those of the worker called directly."""

import asyncio
import random
from pathlib import Path

import httpx
import pytest
from answers_at_random import LIMIT_S, Comparison
from grpc import aio
from random_requests import random_request

from services.worker.model import read_model

COUNT = 2_000
AT_ONCE = 4
"""As many as the engine runs at once."""
TIME_LIMIT_S = 280
MODEL = Path(__file__).resolve().parents[2] / "deploy" / "models" / "autoglm-phone-tiny"
VOCABULARY = read_model(MODEL, {}).vocabulary_size


@pytest.mark.slow
@pytest.mark.timeout(TIME_LIMIT_S)
async def test_random_requests_are_answered_as_by_the_worker(stack):
    source = random.Random(5)
    requests = iter([random_request(source, VOCABULARY, 8) for _ in range(COUNT)])
    async with (
        httpx.AsyncClient(
            base_url=f"http://{stack.address}", timeout=LIMIT_S, trust_env=False
        ) as http,
        aio.insecure_channel(stack.address) as edge,
        aio.insecure_channel(stack.socket("worker-0")) as worker,
    ):
        comparison = Comparison(http, edge, worker)

        async def one_after_another() -> int:
            asked = 0
            for request in requests:
                await comparison.check(request)
                asked += 1
            return asked

        counts = await asyncio.gather(*(one_after_another() for _ in range(AT_ONCE)))
    assert sum(counts) == COUNT
    assert min(comparison.reasons.values()) > COUNT // 20, comparison.reasons
    assert stack.idle_within(2)
