"""Places, the wait for one, and refusal of whoever would wait too long."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from admission_clock import Clock

from services.gateway.fair_queue import Waiter
from services.gateway.places import MOST_RETRY_S, Places
from services.runtime.errors import OverloadedError

HOUR_S = 3600.0


@pytest.fixture
def clock():
    return Clock()


def waiter(flow: str = "k", priority: int = 0) -> Waiter:
    return Waiter(flow, 1.0, 100.0, priority)


@asynccontextmanager
async def running(places: Places, count: int):
    """So many places taken, each until its `set`."""
    ends = [asyncio.Event() for _ in range(count)]

    async def run(end: asyncio.Event) -> None:
        async with places.hold(waiter(), HOUR_S, HOUR_S):
            await end.wait()

    tasks = [asyncio.create_task(run(end)) for end in ends]
    await asyncio.sleep(0)
    yield ends
    for end in ends:
        end.set()
    await asyncio.gather(*tasks)


async def served(places: Places, clock: Clock, count: int, every_s: float) -> None:
    """Let the places be taken and left, so that the rate is known: all are taken meanwhile."""
    for _ in range(count):
        async with places.hold(waiter(), HOUR_S, HOUR_S):
            clock.forward(every_s)


async def enter(
    places: Places, limit_s: float = HOUR_S, patience_s: float = HOUR_S, **fields
) -> int:
    async with places.hold(waiter(**fields), limit_s, patience_s) as ahead:
        return ahead


async def test_who_finds_a_place_free_does_not_wait(clock):
    places = Places(2, 0.5, clock)
    assert await enter(places) == 0
    assert places.running_count == 0


async def test_the_position_is_how_many_were_served_before(clock):
    places = Places(1, 0.5, clock)
    async with running(places, 1) as ends:
        waiting = [asyncio.create_task(enter(places)) for _ in range(5)]
        urgent = None
        await asyncio.sleep(0)
        urgent = asyncio.create_task(enter(places, priority=-1))
        await asyncio.sleep(0)
        ends[0].set()
        assert await urgent == 0
        assert await asyncio.gather(*waiting) == [1, 2, 3, 4, 5]


async def test_who_gives_up_leaves_the_queue_at_once(clock):
    places = Places(1, 0.5, clock)
    async with running(places, 1):
        leaving = asyncio.create_task(enter(places))
        await asyncio.sleep(0)
        assert len(places.queue) == 1
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert len(places.queue) == 0
    assert places.running_count == 0


async def test_a_place_that_comes_in_the_moment_of_giving_up_is_not_lost(clock):
    places = Places(1, 0.5, clock)
    async with running(places, 1) as ends:
        leaving = asyncio.create_task(enter(places))
        await asyncio.sleep(0)
        ends[0].set()
        await asyncio.sleep(0)  # the place has been handed on, but not taken up
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
    assert places.running_count == 0
    assert await enter(places) == 0


async def test_patience_ends_with_a_refusal(clock):
    places = Places(1, 0.5, clock)
    async with running(places, 1):
        with pytest.raises(OverloadedError, match=r"within 0\.02 s") as refused:
            await enter(places, patience_s=0.02)
        assert refused.value.retry_delay_s >= 1
        assert len(places.queue) == 0


async def test_whoever_would_wait_too_long_is_refused_at_once(clock):
    places = Places(1, 0.5, clock)
    await served(places, clock, 20, 1.0)  # one a second
    async with running(places, 1):
        waiting = [asyncio.create_task(enter(places)) for _ in range(5)]
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError, match="5 requests are ahead") as refused:
            await enter(places, limit_s=3.0)
        assert refused.value.retry_delay_s == pytest.approx(6, abs=1)
        assert len(places.queue) == 5
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)


async def test_the_urgent_one_that_would_not_wait_is_let_in(clock):
    places = Places(1, 0.5, clock)
    await served(places, clock, 20, 1.0)
    async with running(places, 1) as ends:
        waiting = [asyncio.create_task(enter(places)) for _ in range(5)]
        await asyncio.sleep(0)
        urgent = asyncio.create_task(enter(places, limit_s=3.0, priority=-1))
        await asyncio.sleep(0)
        ends[0].set()
        assert await urgent == 0
        await asyncio.gather(*waiting)


async def test_an_idle_gateway_refuses_nobody_however_slow_it_was(clock):
    places = Places(1, 0.5, clock)
    await served(places, clock, 20, 100.0)
    assert await enter(places, limit_s=0.001) == 0


async def test_without_a_measured_rate_nobody_is_refused_for_the_wait(clock):
    places = Places(1, 0.5, clock)
    async with running(places, 1) as ends:
        task = asyncio.create_task(enter(places, limit_s=0.001))
        await asyncio.sleep(0)
        ends[0].set()
        assert await task == 0


async def test_the_retry_delay_is_the_time_to_serve_those_who_wait_within_bounds(clock):
    places = Places(1, 0.5, clock)
    assert places.retry_delay_s() == 1
    await served(places, clock, 20, 10.0)
    async with running(places, 1):
        waiting = [asyncio.create_task(enter(places)) for _ in range(3)]
        await asyncio.sleep(0)
        assert places.retry_delay_s() == pytest.approx(30, rel=0.1)
        waiting += [asyncio.create_task(enter(places)) for _ in range(100)]
        await asyncio.sleep(0)
        assert places.retry_delay_s() == MOST_RETRY_S
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)


async def test_a_place_is_not_given_to_who_gave_up_in_the_same_moment(clock):
    places = Places(1, 0.5, clock)
    async with running(places, 1) as ends:
        leaving, staying = (asyncio.create_task(enter(places)) for _ in range(2))
        await asyncio.sleep(0)
        ends[0].set()
        leaving.cancel()  # before the one that runs has gone on, and before this one has heard of it
        assert await staying == 0
    assert places.running_count == 0
