"""A call that is cancelled again while it lets go (its deadline, then its client) leaves nothing behind."""

import asyncio
from dataclasses import replace

import pytest
from scripted import REQUEST, ScriptedPlacement, ScriptedTokenizer, ScriptedWorker, WorkerTokens

from services.gateway.admission import Admission
from services.gateway.admission_limits import AdmissionLimits
from services.gateway.interfaces import WorkerStarted
from services.gateway.registry import Registry
from services.gateway.side_by_side import side_by_side


@pytest.fixture
async def front():
    worker = ScriptedWorker([WorkerStarted(0), WorkerTokens(0, (7,)), 30.0])
    placement = ScriptedPlacement([ScriptedTokenizer()], [worker])
    loop = asyncio.get_running_loop()
    admission = Admission(AdmissionLimits(max_running=4, max_waiting=4), loop.time)
    return Registry(placement, admission, loop.time, 1.0), admission


async def read(registry: Registry, *names: str) -> None:
    deadline_s = asyncio.get_running_loop().time() + 60
    streams = [
        registry.stream(replace(REQUEST, generation_id=name, deadline_s=deadline_s))
        for name in names
    ]
    try:
        async for _ in side_by_side(streams):
            pass
    finally:
        for stream in streams:
            await stream.aclose()


@pytest.mark.parametrize("names", [("one",), ("one", "two", "three")], ids=["one", "several"])
@pytest.mark.parametrize("turns", range(6))
async def test_nothing_is_left_wherever_the_second_cancel_strikes(front, names, turns):
    registry, admission = front
    reading = asyncio.create_task(read(registry, *names))
    async with asyncio.timeout(5):
        while registry.running_count < len(names) or admission.running_count < len(names):
            await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    reading.cancel()
    for _ in range(turns):
        await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    async with asyncio.timeout(5):
        while registry.running_count or admission.seat_count:
            await asyncio.sleep(0)
    await registry.close()
