"""2,000 random valid requests, REST and native mixed: the answers are those of the worker called directly."""

import asyncio
import random

import httpx
import pytest
from answers_at_random import Comparison
from random_requests import random_request
from rest_stack import rest_stack
from sim_stack import LIMIT_S, MODEL

from services.runtime.channel import open_channel
from services.worker.model import read_model

COUNT = 2_000
AT_ONCE = 8
VOCABULARY = read_model(MODEL, {}).vocabulary_size


@pytest.mark.slow
async def test_two_thousand_random_requests_are_answered_as_by_the_worker(tmp_path):
    worker = {"max_model_len": 1024, "sim_output_tokens": 16, "sim_profile": "instant"}
    source = random.Random(4)
    requests = iter([random_request(source, VOCABULARY, 24) for _ in range(COUNT)])
    async with (
        rest_stack(tmp_path, worker, max_running=64) as stack,
        httpx.AsyncClient(base_url=stack.url, timeout=LIMIT_S) as http,
        open_channel(stack.address) as edge,
        open_channel(f"127.0.0.1:{stack.behind.worker.port}") as channel,
    ):
        comparison = Comparison(http, edge, channel)

        async def one_after_another() -> int:
            asked = 0
            for request in requests:
                await comparison.check(request)
                asked += 1
            return asked

        counts = await asyncio.gather(*(one_after_another() for _ in range(AT_ONCE)))
        await stack.behind.until(lambda: stack.behind.app.admission.seat_count == 0)
    assert sum(counts) == COUNT
    assert min(comparison.reasons.values()) > COUNT // 20, comparison.reasons
