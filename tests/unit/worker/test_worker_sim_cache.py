"""Prefix cache, preemption and priorities of the simulator, as its consumers see them."""

import asyncio
from contextlib import aclosing

import pytest
from worker_calls import MODEL
from worker_simulator import (
    Time,
    cached,
    feature,
    gaps,
    ids_of,
    job,
    run,
    run_timed,
    simulator,
    trace,
)

from services.worker.engine import Job, Step, Tokens
from services.worker.sim import SimEngine

MODEL_TOKENS = MODEL.images.max_tokens if MODEL.images else 0
PROMPT = list(range(100, 121))  # 21 tokens: five blocks of 4, and one token


async def test_a_prompt_seen_before_costs_only_what_is_new():
    time = Time()
    engine = await simulator(time)
    assert cached(await run(engine, job("a", PROMPT, max_tokens=1))) == 0
    before = time.now
    assert cached(await run(engine, job("b", PROMPT, max_tokens=1))) == 20
    assert time.now - before == pytest.approx(0.11 + 1 / 100)


async def test_the_last_token_is_always_computed():
    engine = await simulator(Time())
    for expected in (0, 16):  # the fifth block would be the whole prompt
        assert cached(await run(engine, job("a", PROMPT[:20], max_tokens=1))) == expected


async def test_prompts_share_whole_blocks_from_their_beginning():
    engine = await simulator(Time())
    await run(engine, job("a", PROMPT, max_tokens=1))
    other = [*PROMPT[:10], 1, *PROMPT[11:]]
    assert cached(await run(engine, job("b", other, max_tokens=1))) == 8
    assert cached(await run(engine, job("c", [1, *PROMPT], max_tokens=1))) == 0


async def test_the_output_is_cached_too_for_the_next_turn():
    engine = await simulator(Time())
    output = ids_of(await run(engine, job("a", PROMPT, max_tokens=8, ignore_eos=True)))
    following = [*PROMPT, *output, 1, 2, 3]
    # 21 + 8 tokens, of which the last was sampled but not computed: seven blocks
    assert cached(await run(engine, job("b", following, max_tokens=1))) == 28


async def test_another_salt_finds_nothing():
    engine = await simulator(Time())
    for salt in ("one", "two", ""):
        assert cached(await run(engine, job("a", PROMPT, max_tokens=1, salt=salt))) == 0
    assert cached(await run(engine, job("a", PROMPT, max_tokens=1, salt="two"))) == 20


async def test_another_image_in_the_same_place_finds_only_what_is_before_it():
    engine = await simulator(Time())
    prompt = [*PROMPT[:8], *[9] * 8, *PROMPT[:5]]
    for number, expected in ((1, 0), (2, 8), (1, 20)):
        picture = feature(number, offset=8, length=8)
        steps = await run(engine, job("a", prompt, max_tokens=1, features=(picture,)))
        assert cached(steps) == expected


async def test_an_image_that_the_prefix_cache_covers_is_not_seen_by_the_encoder():
    time = Time()
    engine = await simulator(time, batched_tokens=8)
    picture, others = feature(1, 2, 6), [feature(n, 0, MODEL_TOKENS) for n in (2, 3)]
    prompt = [*[9] * 8, 1, 2, 3]
    await run(engine, job("a", prompt, max_tokens=1, features=(picture,)))
    for other in others:  # so large that the encoder forgets the first
        engine._scheduler._encoder.see("", other.placement.digest, other.placement.length)
    before = time.now
    await run(engine, job("b", prompt, max_tokens=1, features=(picture,)))
    assert time.now - before == pytest.approx(0.11 + 3 / 100)


async def test_without_prefix_caching_nothing_is_found():
    engine = await simulator(Time(), prefix_caching=False)
    for _ in range(2):
        assert cached(await run(engine, job("a", PROMPT, max_tokens=1))) == 0


async def test_what_was_not_used_for_longest_is_evicted():
    engine = await simulator(Time(), blocks=12)
    prompts = [[number] * 21 for number in range(1, 5)]
    for prompt in prompts[:2]:
        await run(engine, job("a", prompt, max_tokens=1))
    await run(engine, job("a", prompts[2], max_tokens=1))
    assert cached(await run(engine, job("a", prompts[2], max_tokens=1))) == 20
    assert cached(await run(engine, job("a", prompts[0], max_tokens=1))) < 20


async def test_where_blocks_run_out_the_youngest_waits_and_no_token_changes():
    time = Time()
    engine = await simulator(time, blocks=14)
    both = await asyncio.gather(
        *(
            run_timed(engine, job(name, ids=8, max_tokens=40, ignore_eos=True), time)
            for name in ("old", "young")
        )
    )
    assert engine._scheduler.preemption_count > 0
    for name, steps in zip(("old", "young"), both, strict=True):
        assert ids_of([step for _, step in steps]) == trace(name, 40)
    assert both[0][-1][0] < both[1][-1][0]


async def test_a_preempted_generation_is_computed_again_and_pays_for_it():
    time = Time()
    engine = await simulator(time, blocks=14, prefix_caching=False)
    first = asyncio.ensure_future(run(engine, job("old", ids=8, max_tokens=40, ignore_eos=True)))
    await asyncio.sleep(0)
    steps = await run_timed(engine, job("young", ids=8, max_tokens=40, ignore_eos=True), time)
    await first
    # it waits for the old one's end, then prompt and output so far are prefill: at least 20 tokens
    assert max(gaps(steps)) > 0.11 + 20 / 100


async def test_where_blocks_run_out_the_lowest_priority_waits_whatever_its_age():
    time = Time()
    engine = await simulator(time, blocks=14)
    low = asyncio.ensure_future(
        run_timed(engine, job("low", 8, max_tokens=40, priority=5, ignore_eos=True), time)
    )
    await asyncio.sleep(0)
    high = await run_timed(engine, job("high", 8, max_tokens=40, ignore_eos=True), time)
    assert high[-1][0] < (await low)[-1][0]


async def order(engine: SimEngine, *jobs: Job) -> list[str]:
    """Names in the order of their ends."""
    ended: list[str] = []

    async def one(job: Job) -> list[Step]:
        steps = await run(engine, job)
        ended.append(job.generation_id)
        return steps

    await asyncio.gather(*map(one, jobs))
    return ended


async def test_who_waits_goes_by_priority_then_first_come():
    engine = await simulator(Time(), sequences=1)
    jobs = [
        job(f"{priority}{letter}", max_tokens=2, priority=priority)
        for letter in "ab"
        for priority in (1, 0, -1)
    ]
    async with aclosing(engine.generate(job("running", max_tokens=6, priority=9))) as steps:
        await anext(steps)  # who runs is not put aside for a place
        waiting = asyncio.ensure_future(order(engine, *jobs))
        assert len([step async for step in steps if isinstance(step, Tokens)]) >= 5
        assert not waiting.done()
    assert await waiting == ["-1a", "-1b", "0a", "0b", "1a", "1b"]


async def test_no_more_sequences_run_than_max_num_seqs():
    engine = await simulator(Time(), sequences=3)
    seen = []

    async def one(name: str) -> None:
        async with aclosing(engine.generate(job(name, max_tokens=5))) as steps:
            async for _ in steps:
                seen.append(engine.load().running)

    await asyncio.gather(*(one(f"g{index}") for index in range(9)))
    assert max(seen) == 3
