"""The simulator's steps on a clock of our own: what they cost, what they say, and that batching changes no token."""

import asyncio
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worker_calls import MODEL
from worker_simulator import (
    Time,
    feature,
    ids_of,
    job,
    rest,
    run,
    run_timed,
    simulator,
    trace,
)

from services.runtime.errors import EngineDeadError, UnavailableError, UnimplementedError
from services.worker.engine import (
    Constraint,
    Finished,
    Job,
    Reason,
    Started,
    Tokens,
)
from services.worker.sim_costs import PROFILES, SimCosts
from services.worker.sim_tokens import trace_token


async def test_one_generation_takes_its_prefill_and_a_step_for_each_token():
    time = Time()
    steps = await run_timed(await simulator(time), job(ids=10, max_tokens=4), time)
    # 0.1 s a step, 0.01 s for the one sequence, 10 prompt tokens at 100 a second in the first step
    first = 0.1 + 0.01 + 10 / 100
    assert [when for when, step in steps if isinstance(step, Tokens)] == pytest.approx(
        [first, first + 0.11, first + 0.22, first + 0.33]
    )


async def test_sequences_advance_together_and_each_makes_the_step_longer():
    time = Time()
    engine = await simulator(time)
    both = await asyncio.gather(
        *(run_timed(engine, job(name, ids=10, max_tokens=3), time) for name in ("a", "b"))
    )
    first = 0.1 + 2 * 0.01 + 20 / 100
    for steps in both:
        assert [when for when, step in steps if isinstance(step, Tokens)] == pytest.approx(
            [first, first + 0.12, first + 0.24]
        )


async def test_a_prompt_is_read_in_chunks_of_the_steps_budget_while_others_go_on():
    time = Time()
    engine = await simulator(time, batched_tokens=8)
    other = asyncio.ensure_future(run_timed(engine, job("other", ids=1, max_tokens=9), time))
    await asyncio.sleep(0)
    steps = await run_timed(engine, job("long", ids=21, max_tokens=1), time)
    # step 1: 1 + 7 tokens of prefill; then one decode and 7 of prefill, twice, the last of which samples
    first_three = (0.12 + 8 / 100) + (0.12 + 7 / 100) + (0.12 + 7 / 100)
    assert steps[0][0] == pytest.approx(first_three)
    decoded = [when for when, step in await other if isinstance(step, Tokens)]
    assert decoded[:3] == pytest.approx([0.2, 0.39, 0.58])


async def test_an_image_is_seen_by_the_encoder_once():
    time = Time()
    engine = await simulator(time)
    picture = feature(1, offset=2, length=4)
    await run(engine, job("a", ids=10, max_tokens=1, features=(picture,)))
    assert time.now == pytest.approx(0.11 + 10 / 100 + 1.0)
    await run(engine, job("b", ids=[6] * 10, max_tokens=1, features=(picture,)))
    assert time.now == pytest.approx(2 * (0.11 + 10 / 100) + 1.0)


async def test_the_same_image_under_another_salt_is_seen_again():
    time = Time()
    engine = await simulator(time)
    picture = feature(1, offset=2, length=4)
    for salt in ("one", "two"):
        await run(engine, job(salt, ids=10, max_tokens=1, salt=salt, features=(picture,)))
    assert time.now == pytest.approx(2 * (0.11 + 10 / 100 + 1.0))


async def test_what_comes_during_a_step_waits_for_its_end():
    time = Time()
    engine = await simulator(time)
    async with aclosing(engine.generate(job("first", ids=10, max_tokens=9))) as steps:
        assert isinstance(await anext(steps), Started)
        begin = time.now
        late = await run_timed(engine, job("late", ids=[6] * 10, max_tokens=1), time)
        # the first one's step, then one for both
        assert late[0][0] >= begin + 0.12 + 10 / 100 - 1e-9


async def test_a_loop_that_is_late_gets_several_tokens_at_once_and_never_more_than_time_allows():
    time = Time(lag_s=0.5)
    steps = await run_timed(await simulator(time), job(max_tokens=40, ignore_eos=True), time)
    pieces = [(when, step) for when, step in steps if isinstance(step, Tokens)]
    assert 1 < len(pieces) < 40
    for when, piece in pieces:
        position = piece.position + len(piece.token_ids) - 1
        assert when >= 0.21 + position * 0.11 - 1e-6
    assert ids_of([step for _, step in steps]) == trace("g", 40)


async def test_a_generation_that_comes_while_the_simulator_is_late_does_not_begin_in_the_past():
    time = Time()
    engine = await simulator(time)
    first = asyncio.ensure_future(run(engine, job("first", ids=10, max_tokens=60, ignore_eos=True)))
    for _ in range(3):
        await asyncio.sleep(0)  # it is in its first step
    time.now += 5.0  # the loop was blocked
    begin = time.now
    late = await run_timed(engine, job("late", ids=[6] * 10, max_tokens=1), time)
    assert late[0][0] >= begin + 0.12 + 10 / 100 - 1e-6
    await first


async def test_steps_without_cost_give_one_token_each():
    time = Time()
    engine = await simulator(time, step_s=0, per_sequence_s=0, prefill_tokens_per_s=float("inf"))
    steps = await run(engine, job())
    assert [type(step) for step in steps] == [Started, *[Tokens] * 4, Finished]
    assert time.now == 0


async def test_without_synchrony_each_sequence_keeps_a_time_of_its_own():
    time = Time()
    engine = await simulator(
        time, synchronous=False, per_sequence_s=0, prefill_tokens_per_s=float("inf")
    )
    first = asyncio.ensure_future(run_timed(engine, job("a", ids=1, max_tokens=5), time))
    for _ in range(3):
        await asyncio.sleep(0)  # it is in its first step
    time.now = 0.03
    second = await run_timed(engine, job("b", ids=1, max_tokens=5), time)
    for begin, steps in ((0.0, await first), (0.03, second)):
        times = [when for when, step in steps if isinstance(step, Tokens)]
        assert times == pytest.approx([begin + 0.1 * n for n in range(1, 6)], abs=0.0011)


async def test_min_tokens_put_the_end_token_off():
    steps = await run(await simulator(Time(), output_tokens=5), job(max_tokens=20, min_tokens=9))
    assert steps[-1] == Finished(0, Reason.STOP, 10, MODEL.end_token_ids[0])


async def test_ignore_eos_leaves_the_end_token_out():
    engine = await simulator(Time(), output_tokens=5)
    steps = await run(engine, job(max_tokens=20, ignore_eos=True))
    assert steps[-1] == Finished(0, Reason.LENGTH, 20)


async def test_an_end_token_at_the_limit_is_cut_off_by_it():
    engine = await simulator(Time(), output_tokens=5)
    assert (await run(engine, job(max_tokens=5)))[-1] == Finished(0, Reason.LENGTH, 5)
    assert (await run(engine, job(max_tokens=6)))[-1] == (
        Finished(0, Reason.STOP, 6, MODEL.end_token_ids[0])
    )


async def test_a_stop_token_ends_it_and_not_before_min_tokens():
    tokens = trace("g", 12)
    engine = await simulator(Time())
    steps = await run(
        engine, job(max_tokens=20, min_tokens=4, stop_token_ids=[tokens[2], tokens[11]])
    )
    assert steps[-1] == Finished(0, Reason.STOP_SEQUENCE, 12, tokens[11])
    assert ids_of(steps) == tokens


async def test_every_choice_has_tokens_of_its_own_and_one_start():
    steps = await run(await simulator(Time()), job(max_tokens=5, n=3))
    assert [type(step) for step in steps].count(Started) == 1
    assert [ids_of(steps, index) for index in range(3)] == [trace("g", 5, i) for i in range(3)]


async def test_more_choices_than_slots_end_all_the_same():
    steps = await run(await simulator(Time(), sequences=2), job(max_tokens=5, n=5))
    assert len([step for step in steps if isinstance(step, Finished)]) == 5


async def test_load_tells_running_waiting_and_the_share_of_blocks():
    time = Time()
    engine = await simulator(time, sequences=1, blocks=10)
    async with aclosing(engine.generate(job("a", ids=10, max_tokens=9))) as steps:
        await anext(steps)
        second = asyncio.ensure_future(run(engine, job("b", ids=10)))
        await asyncio.sleep(0)
        load = engine.load()
        assert (load.running, load.waiting) == (1, 1)
        assert load.kv_usage_ratio == pytest.approx(0.3)  # 10 tokens and what is under way, by 4
    await second
    assert (engine.load().running, engine.load().waiting, engine.load().kv_usage_ratio) == (0, 0, 0)


async def test_closing_a_generation_frees_its_place_and_its_blocks_at_once():
    engine = await simulator(Time())
    for count in (0, 1):
        async with aclosing(engine.generate(job())) as steps:
            for _ in range(count):
                await anext(steps)
        assert engine.load() == type(engine.load())(0, 0, 0.0)


async def test_a_consumer_that_is_slow_gets_longer_pieces_and_holds_nobody_up():
    time = Time()
    engine = await simulator(time)
    async with aclosing(engine.generate(job("slow", max_tokens=30, ignore_eos=True))) as steps:
        await anext(steps)
        await run(engine, job("other", max_tokens=20, ignore_eos=True))
        pieces = [step async for step in steps if isinstance(step, Tokens)]
    assert max(len(piece.token_ids) for piece in pieces) > 10
    assert ids_of(list(pieces)) == trace("slow", 30)


async def test_log_probabilities_come_one_for_each_id():
    steps = await run(await simulator(Time(lag_s=0.3)), job(max_tokens=8, logprobs=1))
    for step in steps:
        if isinstance(step, Tokens):
            assert [entry.sampled.token_id for entry in step.logprobs] == list(step.token_ids)
            assert all(len(entry.top) == 1 for entry in step.logprobs)


async def test_structured_output_is_refused():
    engine = await simulator(Time())
    with pytest.raises(UnimplementedError) as refused:
        await run(engine, job(constraint=Constraint("json_object")))
    assert refused.value.field == "sampling.structured_output.json_object"


async def test_an_engine_that_is_closed_refuses_and_ends_what_ran():
    engine = await simulator(Time())
    async with aclosing(engine.generate(job())) as steps:
        await anext(steps)
        await engine.close()
        with pytest.raises(EngineDeadError):
            await rest(steps)
    with pytest.raises(UnavailableError):
        await run(engine, job())


REQUEST = st.tuples(
    st.integers(1, 40),  # prompt tokens
    st.integers(1, 30),  # output tokens
    st.integers(-2, 2),  # priority
    st.integers(0, 30),  # begins after so many turns of the loop
    st.booleans(),  # leaves early
)


@settings(max_examples=60, deadline=None)
@given(
    requests=st.lists(REQUEST, min_size=1, max_size=8),
    sequences=st.integers(1, 4),
    batched_tokens=st.sampled_from([1, 5, 64]),
    blocks=st.integers(18, 40),
    synchronous=st.booleans(),
    lag_s=st.sampled_from([0.0, 0.35]),
)
def test_tokens_follow_from_key_and_position_whatever_runs_beside_them(
    requests: list[tuple[int, int, int, int, bool]],
    sequences: int,
    batched_tokens: int,
    blocks: int,
    synchronous: bool,
    lag_s: float,
):
    async def one(engine: object, index: int, turns: int, leaves: bool, job: Job) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        collected: list[object] = []
        async with aclosing(engine.generate(job)) as steps:  # type: ignore[attr-defined]
            async for step in steps:
                collected.append(step)
                if leaves and len(collected) == 3:
                    break
        ids = ids_of(collected)  # type: ignore[arg-type]
        assert ids == trace(f"k{index}", len(ids))
        assert leaves or len(ids) == job.sampling.max_tokens

    async def scenario() -> None:
        time = Time(lag_s)
        engine = await simulator(
            time,
            sequences=sequences,
            batched_tokens=batched_tokens,
            blocks=blocks,
            synchronous=synchronous,
        )
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            for index, (length, output, priority, turns, leaves) in enumerate(requests):
                made = job(
                    f"k{index}", length, max_tokens=output, priority=priority, ignore_eos=True
                )
                group.create_task(one(engine, index, turns, leaves, made))
        load = engine.load()
        assert (load.running, load.waiting, load.kv_usage_ratio) == (0, 0, 0)
        await engine.close()

    asyncio.run(scenario())


def test_tokens_are_ordinary_ids_spread_over_the_vocabulary():
    ids = {trace_token("k", 0, position, MODEL.ordinary_ids) for position in range(2000)}
    assert ids <= set(MODEL.ordinary_ids)
    assert len(ids) > 1000
    assert not ids & {*MODEL.end_token_ids, *MODEL.placeholder_token_ids}


def test_tokens_differ_by_key_choice_and_position():
    rows = {
        tuple(trace_token(key, choice, shift + p, MODEL.ordinary_ids) for p in range(8))
        for key in ("a", "b")
        for choice in (0, 1)
        for shift in (0, 1)
    }
    assert len(rows) == 8


def test_a_step_costs_what_its_parts_cost():
    costs = SimCosts(0.01, 0.001, 1000.0, 0.25)
    assert costs.step_duration_s(0, 0, 0) == pytest.approx(0.01)
    assert costs.step_duration_s(16, 0, 0) == pytest.approx(0.026)
    assert costs.step_duration_s(1, 500, 2) == pytest.approx(0.01 + 0.001 + 0.5 + 0.5)


def test_the_profile_of_two_4090s_has_the_numbers_of_such_a_machine():
    costs = PROFILES["rtx4090x2"].costs
    assert costs.step_duration_s(1, 0, 0) == pytest.approx(0.0129 + 0.000_076)
    assert costs.step_duration_s(16, 10_000, 1) == pytest.approx(0.0129 + 16 * 0.000_076 + 1 + 0.25)
