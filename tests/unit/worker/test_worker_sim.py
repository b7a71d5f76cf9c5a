"""The simulator, on a clock of our own."""

from contextlib import aclosing

import pytest
from worker_calls import MODEL

from services.runtime.errors import EngineDeadError
from services.worker.engine import Finished, Job, Prompt, Reason, Sampling, Started, Step, Tokens
from services.worker.sim import SimCosts, SimEngine, trace_token


class Time:
    """Sleeping moves the clock, at once."""

    def __init__(self, lag_s: float = 0.0) -> None:
        self.now, self.lag_s = 0.0, lag_s

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds + self.lag_s


def engine(time: Time, slots: int = 4, step_s: float = 0.1) -> SimEngine:
    return SimEngine(MODEL, SimCosts(step_s, 100.0, 5), slots, time.clock, time.sleep)


def job(name: str = "g", **sampling: object) -> Job:
    chosen = Sampling(**{"max_tokens": 4, **sampling})  # type: ignore[arg-type]
    return Job(name, Prompt([5] * 10), chosen, trace_key=name)


async def run(engine: SimEngine, job: Job) -> list[Step]:
    async with aclosing(engine.generate(job)) as steps:
        return [step async for step in steps]


async def test_prefill_and_steps_take_their_time():
    time = Time()
    await run(engine(time), job())
    assert time.now == pytest.approx(10 / 100 + 3 * 0.1)


async def test_a_loop_that_is_late_catches_up_in_one_step():
    steps = await run(engine(Time(lag_s=0.25)), job(max_tokens=8, ignore_eos=True))
    pieces = [step for step in steps if isinstance(step, Tokens)]
    assert len(pieces) < 8
    assert [token for piece in pieces for token in piece.token_ids] == [
        trace_token("g", 0, position, MODEL.ordinary_ids) for position in range(8)
    ]


async def test_the_same_job_gives_the_same_steps_on_any_worker():
    assert await run(engine(Time()), job()) == await run(engine(Time(), slots=1), job())


async def test_steps_without_time_give_one_token_each():
    steps = await run(engine(Time(), step_s=0), job())
    assert [type(step) for step in steps] == [Started, *[Tokens] * 4, Finished]


async def test_min_tokens_put_the_end_token_off():
    steps = await run(engine(Time()), job(max_tokens=20, min_tokens=9))
    assert steps[-1] == Finished(0, Reason.STOP, 10, MODEL.end_token_ids[0])


async def test_ignore_eos_leaves_the_end_token_out():
    steps = await run(engine(Time()), job(max_tokens=20, ignore_eos=True))
    assert steps[-1] == Finished(0, Reason.LENGTH, 20)


async def test_load_counts_running_and_nobody_after_the_end():
    simulator = engine(Time(), slots=2)
    async with aclosing(simulator.generate(job())) as steps:
        await anext(steps)
        assert (simulator.load().running, simulator.load().kv_usage_ratio) == (1, 0.5)
    assert simulator.load().running == 0


async def test_a_killed_simulator_fails_what_runs_and_what_comes():
    simulator = engine(Time())
    async with aclosing(simulator.generate(job())) as steps:
        await anext(steps)
        simulator.kill()
        with pytest.raises(EngineDeadError):
            await anext(steps)
    with pytest.raises(EngineDeadError):
        await run(simulator, job())
    await simulator.died()


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
