"""Bringing an engine back: when, after how long, and what is told meanwhile. An engine and a clock of the test's own."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NoReturn

import pytest
from worker_calls import MODEL
from worker_simulator import LIMIT_S, Time

from services.worker.backoff import Backoff
from services.worker.engine import Job, Load, Started, Step
from services.worker.features import FeatureStore
from services.worker.generations import Generations
from services.worker.limits import Limits
from services.worker.request import GenerateRequest, SamplingRequest
from services.worker.resident import EngineGivenUpError, Patience, ResidentEngine


class Scripted:
    """An engine that dies on demand, whose starts fail on demand. `events` says what happened to it."""

    name = "scripted"

    def __init__(self, events: list[str]) -> None:
        self.events, self.failures = events, list[Exception]()
        self.death, self.starts = asyncio.Event(), asyncio.Event()
        self.last_step_s = 0.0

    async def start(self) -> None:
        self.starts.set()
        if self.failures:
            self.events.append("start fails")
            raise self.failures.pop(0)
        self.events.append("start")
        self.death = asyncio.Event()

    async def generate(self, job: Job) -> AsyncGenerator[Step, None]:
        await asyncio.Event().wait()
        yield Started(0, 0)

    def load(self) -> Load:
        return Load(0, 0, 0.0)

    async def died(self) -> None:
        await self.death.wait()

    async def close(self) -> None:
        self.events.append("close")


class Bench:
    """A resident engine under test."""

    def __init__(self, stall_s: float = 0.0, start_s: float = 60.0, restarts: int = 0) -> None:
        self.events: list[str] = []
        self.sleeps: list[float] = []
        self.time = Time()
        self.steps_come = False
        self.engine = Scripted(self.events)
        limits = Limits(MODEL, 100, 0)
        store = FeatureStore(1024, 10.0, self.time.clock)
        self.generations = Generations(self.engine, store, limits, 4, self.time.clock)
        self.back = asyncio.Event()
        self.resident = ResidentEngine(
            self.engine,
            self.generations,
            Patience(start_s, stall_s, restarts),
            self.warm_up,
            self.warming,
            self.time.clock,
            self.sleep,
        )

    async def warm_up(self) -> None:
        self.events.append("warm up")

    @asynccontextmanager
    async def warming(self) -> AsyncGenerator[None, None]:
        self.events.append("WARMING")
        yield
        self.events.append("SERVING")
        self.back.set()

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        if self.steps_come:
            self.engine.last_step_s = self.time.now + seconds / 2
        await self.time.sleep(seconds)

    async def crash(self, served_s: float = 0.0) -> None:
        """The engine ends after it has served for so long; returns when it is back."""
        self.time.now += served_s
        self.back.clear()
        self.engine.death.set()
        await asyncio.wait_for(self.back.wait(), LIMIT_S)


@asynccontextmanager
async def kept(bench: Bench) -> AsyncGenerator[Bench, None]:
    """Started, and kept while the block runs."""
    await bench.resident.start()
    keeping: asyncio.Task[NoReturn] = asyncio.create_task(bench.resident.keep())
    try:
        yield bench
    finally:
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0)


async def test_the_old_engine_is_closed_and_a_new_one_warmed_before_serving_again():
    async with kept(Bench()) as bench:
        await bench.crash()
        assert bench.events == [
            *("start", "warm up"),
            *("WARMING", "close", "start", "warm up", "SERVING"),
        ]
        assert bench.resident.restart_count == 1


async def test_the_first_restart_is_at_once_and_a_crash_loop_backs_off_up_to_a_minute():
    async with kept(Bench()) as bench:
        for _ in range(9):
            await bench.crash(served_s=1.0)
        assert bench.sleeps == [0, 1, 2, 4, 8, 16, 32, 60, 60]


async def test_an_engine_that_has_served_for_a_while_ends_the_crash_loop():
    async with kept(Bench()) as bench:
        for served_s in (1.0, 1.0, 59.0, 60.0, 1.0):
            await bench.crash(served_s)
        assert bench.sleeps == [0, 1, 2, 0, 1]


async def test_a_start_that_fails_is_a_crash_too_and_is_closed_before_the_next():
    async with kept(Bench()) as bench:
        bench.engine.failures = [OSError("no memory"), TimeoutError()]
        await bench.crash(served_s=100.0)
        assert bench.sleeps == [0, 1, 2]
        assert bench.events[2:] == [
            "WARMING",
            *("close", "start fails", "close", "start fails", "close", "start"),
            *("warm up", "SERVING"),
        ]
        assert bench.resident.restart_count == 1


async def test_an_engine_is_given_up_after_so_many_starts_in_one_process():
    bench = Bench(restarts=3)
    await bench.resident.start()
    keeping = asyncio.create_task(bench.resident.keep())
    await bench.crash(served_s=100.0)
    bench.engine.failures = [OSError("no memory")]  # a start that fails leaves memory behind too
    await bench.crash(served_s=100.0)
    bench.engine.death.set()
    with pytest.raises(EngineGivenUpError, match="3 times"):
        await asyncio.wait_for(keeping, LIMIT_S)
    assert bench.events[-2:] == ["WARMING", "close"]  # nobody may think that it serves
    assert bench.resident.restart_count == 2


async def test_the_first_start_that_fails_is_the_callers_to_see():
    bench = Bench()
    bench.engine.failures = [OSError("no memory")]
    with pytest.raises(OSError, match="no memory"):
        await bench.resident.start()


async def test_a_start_that_takes_too_long_is_given_up():
    bench = Bench(start_s=0.05)

    async def never() -> None:
        await asyncio.Event().wait()

    bench.engine.start = never  # type: ignore[method-assign]
    with pytest.raises(TimeoutError):
        await bench.resident.start()


async def test_a_warm_up_that_fails_is_a_failed_start():
    async with kept(Bench()) as bench:
        failures = [RuntimeError("no logits")]

        async def warm_up() -> None:
            if failures:
                raise failures.pop()

        bench.resident._warm_up = warm_up
        await bench.crash(served_s=100.0)
        assert bench.sleeps == [0, 1]


async def test_serving_time_counts_from_the_last_start_and_is_zero_while_down():
    async with kept(Bench()) as bench:
        bench.time.now += 7.0
        assert bench.resident.serving_s == 7.0
        blocked = asyncio.Event()

        async def waits() -> None:
            await blocked.wait()

        bench.engine.start = waits  # type: ignore[method-assign]
        bench.engine.death.set()
        await until(lambda: "close" in bench.events)
        assert bench.resident.serving_s == 0.0
        bench.engine.death = asyncio.Event()
        blocked.set()
        await asyncio.wait_for(bench.back.wait(), LIMIT_S)
        bench.time.now += 2.0
        assert bench.resident.serving_s == 2.0


async def ask_in_vain(bench: Bench, for_s: float) -> None:
    """A generation that gets no answer; its caller gives up after so long."""
    request = GenerateRequest("g", [5], sampling=SamplingRequest({"max_tokens": 1}))
    asking = asyncio.ensure_future(anext(bench.generations.run(request)))
    await until(lambda: bench.generations.busy_since_s is not None)
    bench.time.now += for_s
    asking.cancel()
    with suppress(asyncio.CancelledError):
        await asking


async def test_callers_that_give_up_one_after_the_other_do_not_hide_that_none_was_answered():
    bench = Bench()
    for _ in range(3):
        await ask_in_vain(bench, 10.0)
        bench.time.now += 100.0  # idle: no evidence
    asking = asyncio.ensure_future(ask_in_vain(bench, 0.0))
    await until(lambda: bench.generations.busy_since_s is not None)
    assert bench.generations.busy_since_s == bench.time.now - 30.0
    await asking


async def test_a_step_of_the_engine_makes_up_for_what_was_not_answered():
    bench = Bench()
    await ask_in_vain(bench, 10.0)
    bench.engine.last_step_s = bench.time.now
    await ask_in_vain(bench, 10.0)
    asking = asyncio.ensure_future(ask_in_vain(bench, 0.0))
    await until(lambda: bench.generations.busy_since_s is not None)
    assert bench.generations.busy_since_s == bench.time.now - 10.0
    await asking


class Busy:
    """Generations that run since a time, or do not."""

    def __init__(self, since_s: float | None) -> None:
        self.busy_since_s = since_s
        self.ended = 0

    def engine_ended(self) -> None:
        self.ended += 1
        self.busy_since_s = None


def busy(bench: Bench, since_s: float | None) -> Busy:
    generations: Any = Busy(since_s)
    bench.resident._generations = generations
    return generations


async def test_no_step_for_too_long_while_something_runs_is_the_end_of_an_engine():
    bench = Bench(stall_s=30.0)
    generations = busy(bench, 0.0)
    async with kept(bench):
        await asyncio.wait_for(bench.back.wait(), LIMIT_S)
        assert (bench.sleeps[0], generations.ended) == (30.0, 1)


async def test_the_time_without_a_step_counts_from_the_last_step_and_from_the_first_generation():
    bench = Bench(stall_s=30.0)
    bench.time.now = 100.0
    busy(bench, 90.0)
    bench.engine.last_step_s = 95.0
    async with kept(bench):
        await asyncio.wait_for(bench.back.wait(), LIMIT_S)
        assert bench.sleeps[0] == 25.0


async def test_steps_keep_an_engine_alive_for_as_long_as_they_come():
    bench = Bench(stall_s=30.0)
    generations = busy(bench, 0.0)
    bench.steps_come = True
    async with kept(bench):
        await until(lambda: bench.time.now > 1000)
        assert generations.ended == 0
        bench.steps_come = False
        await asyncio.wait_for(bench.back.wait(), LIMIT_S)
        assert generations.ended == 1


async def test_an_engine_without_work_may_rest_for_ever():
    bench = Bench(stall_s=30.0)
    generations = busy(bench, None)
    async with kept(bench):
        await until(lambda: bench.time.now > 1000)
        assert generations.ended == 0


def test_the_delays_are_bounded_however_often_it_crashes():
    backoff = Backoff()
    delays = [backoff.crashed(0.0) for _ in range(2000)]
    assert max(delays) == delays[-1] == 60.0
