"""One turn of a session at a time: what happens where two things happen at once."""

import asyncio

import pytest

from services.gateway.sessions.turn_locks import MAX_WAITING, TurnLocks
from services.runtime.errors import SessionBusyError

ID = b"s" * 16


async def holding(locks: TurnLocks, wait_s: float = 5.0) -> None:
    async with locks.hold(ID, wait_s):
        await asyncio.sleep(0)


async def waiting_turn(locks: TurnLocks) -> "asyncio.Task[None]":
    task = asyncio.create_task(holding(locks))
    await asyncio.sleep(0)
    return task


async def test_who_gives_up_at_the_moment_the_turn_ends_leaves_the_line_in_order():
    locks = TurnLocks()
    async with locks.hold(ID, 0):
        gone, stays = await waiting_turn(locks), await waiting_turn(locks)
        gone.cancel()  # its place is taken out by the end of this turn, before it runs again itself
    with pytest.raises(asyncio.CancelledError):
        await gone
    await stays
    assert not locks._waiting


async def test_whose_time_is_over_at_the_moment_the_turn_ends_is_told_that_it_is_busy():
    locks = TurnLocks()
    async with locks.hold(ID, 0):
        late = asyncio.create_task(holding(locks, 0.01))
        await asyncio.sleep(0)
        place = locks._waiting[ID][0]
        place.add_done_callback(lambda _: ended.set_result(None))
        ended = asyncio.get_running_loop().create_future()
        await ended
    with pytest.raises(SessionBusyError, match=r"within 0\.01 s"):
        await late
    assert not locks._waiting


async def test_who_is_cancelled_when_the_turn_has_come_passes_it_on():
    locks = TurnLocks()
    async with locks.hold(ID, 0):
        first, second = await waiting_turn(locks), await waiting_turn(locks)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    async with asyncio.timeout(1):
        await second


async def test_a_failure_ends_the_turn_too():
    locks = TurnLocks()
    with pytest.raises(ZeroDivisionError):
        async with locks.hold(ID, 0):
            raise ZeroDivisionError
    await holding(locks, 0)


async def test_so_many_wait_and_no_more():
    locks = TurnLocks()
    async with locks.hold(ID, 0):
        tasks = [await waiting_turn(locks) for _ in range(MAX_WAITING)]
        with pytest.raises(SessionBusyError, match=str(MAX_WAITING)):
            await holding(locks)
    await asyncio.gather(*tasks)


async def test_a_session_without_a_turn_takes_no_room():
    locks = TurnLocks()
    await holding(locks)
    assert not locks._waiting
