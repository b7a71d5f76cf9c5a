"""What the warm-up asks of an engine."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
from worker_calls import MODEL

from services.worker import warmup
from services.worker.engine import Finished, Job, Load, Reason, Started, Step, Tokens
from services.worker.limits import Limits

LIMITS = Limits(model=MODEL, context_tokens=8192, max_images=4)


class Recorder:
    """An engine that keeps what it is asked, and answers at once, or never where the prompt is too long for it."""

    def __init__(self, name: str = "vllm", most_tokens: int = 10_000) -> None:
        self.name, self._most_tokens = name, most_tokens
        self.jobs: list[Job] = []

    async def start(self) -> None:
        """Nothing to load."""

    async def generate(self, job: Job) -> AsyncGenerator[Step, None]:
        self.jobs.append(job)
        yield Started(len(job.prompt.token_ids), 0)
        if len(job.prompt.token_ids) > self._most_tokens:
            await asyncio.Event().wait()
        yield Tokens(0, 0, [5])
        yield Finished(0, Reason.LENGTH, 1)

    def load(self) -> Load:
        return Load(0, 0, 0.0)

    async def died(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Nothing to end."""


async def asked(limits: Limits, name: str = "vllm") -> list[Job]:
    engine = Recorder(name)
    await warmup.warm_up(engine, limits)
    return engine.jobs


async def test_text_logprobs_forms_the_largest_image_and_the_longest_prompt_are_warmed():
    jobs = await asked(LIMITS)
    assert [job.sampling.logprobs for job in jobs].count(1) == 1
    kinds = [job.sampling.constraint.kind for job in jobs if job.sampling.constraint]
    assert kinds == ["json_schema", "regex"]
    assert len(jobs[-2].prompt.features) == 1
    assert len(jobs[-1].prompt.token_ids) == 8184
    assert {job.prompt.cache_salt for job in jobs} == {warmup.SALT}


@pytest.mark.parametrize("context_tokens", [2, 7, 64])
async def test_no_prompt_is_longer_than_the_context(context_tokens: int):
    for job in await asked(replace(LIMITS, context_tokens=context_tokens)):
        assert 1 <= job.sampling.max_tokens <= context_tokens - len(job.prompt.token_ids)


async def test_a_simulator_reads_no_long_prompt():
    jobs = await asked(LIMITS, name="sim")
    assert max(len(job.prompt.token_ids) for job in jobs) < 1000


async def test_a_longest_prompt_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(warmup, "LONGEST_LIMIT_S", 0.05)
    engine = Recorder(most_tokens=1000)
    await asyncio.wait_for(warmup.warm_up(engine, LIMITS), 5)
    assert len(engine.jobs[-1].prompt.token_ids) == 8184
