"""Credits are spent one by one; who has none waits, but not for ever."""

import asyncio

import pytest

from services.gateway.pace import MAX_CREDITS, MAX_CREDITS_AT_ONCE, Pace
from services.runtime.errors import DeadlineExceededError, InvalidArgumentError, UnavailableError


async def spent(pace: Pace) -> int:
    """Credits that can be spent now."""
    count = 0
    while True:
        spending = asyncio.ensure_future(pace.spend())
        await asyncio.sleep(0.01)
        if not spending.done():
            spending.cancel()
            return count
        await spending
        count += 1


async def test_so_many_credits_are_so_many_events():
    pace = Pace(5)
    assert await spent(pace) == 0
    pace.add(2)
    pace.add(1)
    assert await spent(pace) == 3


async def test_who_waits_goes_on_at_the_next_credit():
    pace = Pace(5)
    waiting = asyncio.ensure_future(pace.spend())
    await asyncio.sleep(0)
    pace.add(1)
    await asyncio.wait_for(waiting, 5)


async def test_nothing_is_spent_for_what_is_free_nor_once_the_pace_is_lifted():
    pace = Pace(5)
    await pace.spend(0)
    pace.lift()
    for _ in range(10):
        await pace.spend()


async def test_who_waits_hears_a_failure_and_the_end_of_patience():
    pace = Pace(0.05)
    with pytest.raises(DeadlineExceededError):
        await pace.spend()
    waiting = asyncio.ensure_future(pace.spend())
    await asyncio.sleep(0)
    pace.fail(UnavailableError("gone"))
    with pytest.raises(UnavailableError):
        await waiting


@pytest.mark.parametrize("count", [0, -1, MAX_CREDITS_AT_ONCE + 1])
def test_credits_out_of_range_are_refused(count):
    with pytest.raises(InvalidArgumentError, match="credits"):
        Pace(5).add(count)


def test_credits_that_are_not_spent_are_bounded():
    pace = Pace(5)
    for _ in range(MAX_CREDITS // MAX_CREDITS_AT_ONCE):
        pace.add(MAX_CREDITS_AT_ONCE)
    with pytest.raises(InvalidArgumentError, match="credits"):
        pace.add(1)
