"""Bounded places for renders, and a bounded waiting room."""

import asyncio

import pytest

from services.runtime.errors import OverloadedError
from services.tokenizer.admission import Admission


async def test_whoever_finds_the_waiting_room_full_is_refused_at_once():
    admission = Admission(running_limit=1, waiting_limit=1)
    async with admission.place():
        waiting = asyncio.ensure_future(enter(admission))
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError) as refused:
            await enter(admission)
        assert refused.value.retry_delay_s == 1.0
        assert "1 requests are running and 1 waiting" in refused.value.message
    await waiting


async def test_places_come_back_and_counts_stay_true():
    admission = Admission(running_limit=2, waiting_limit=10)
    await asyncio.gather(*(enter(admission) for _ in range(8)))
    assert (admission.running_count, admission.waiting_count) == (0, 0)


async def test_a_wait_that_is_cancelled_leaves_no_trace():
    admission = Admission(running_limit=1, waiting_limit=1)
    async with admission.place():
        waiting = asyncio.ensure_future(enter(admission))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait((waiting,))
        assert admission.waiting_count == 0
    await enter(admission)


async def test_an_error_inside_frees_the_place():
    admission = Admission(running_limit=1, waiting_limit=0)
    for _ in range(3):
        with pytest.raises(ValueError, match="inside"):
            async with admission.place():
                raise ValueError("inside")
    assert admission.running_count == 0


async def enter(admission: Admission) -> None:
    async with admission.place():
        await asyncio.sleep(0.01)
