"""A generation whose worker goes after its begin: it goes on behind its ids, and its reader hears of nothing."""

import asyncio
from dataclasses import replace

import pytest
from scripted import (
    REQUEST,
    ScriptedPlacement,
    ScriptedTokenizer,
    ScriptedWorker,
    WorkerFinished,
    WorkerTokens,
)

from services.gateway.admission import Admission
from services.gateway.admission_limits import AdmissionLimits
from services.gateway.events import Failed, Finish, Finished, Started, Text
from services.gateway.interfaces import WorkerStarted
from services.gateway.registry import Registry
from services.runtime.errors import EngineDeadError, InvalidArgumentError, UnavailableError

GONE = UnavailableError("worker-0 ended its stream.", retry_delay_s=1.0)
DEAD = EngineDeadError("The engine ended while this generation ran.", retry_delay_s=1.0)
MOVABLE = replace(REQUEST, is_movable=True)


def begun(*ids: int):
    return [WorkerStarted(0), *(WorkerTokens(0, (token,)) for token in ids)]


def ended(count: int):
    return WorkerFinished(0, Finish.LENGTH, None, count)


async def played(placement: ScriptedPlacement, request=MOVABLE):
    loop = asyncio.get_running_loop()
    limits = AdmissionLimits(max_running=4, max_waiting=4, queue_timeout_s=1.0)
    registry = Registry(placement, Admission(limits, loop.time), loop.time, 1.0)
    request = replace(request, deadline_s=loop.time() + 5)
    events = [numbered async for numbered in registry.stream(request)]
    assert [event.sequence for event in events] == sorted({event.sequence for event in events})
    assert placement.placed == []
    return [event.event for event in events]


def text(events) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


@pytest.mark.parametrize("error", [GONE, DEAD], ids=["gone", "dead"])
async def test_another_worker_goes_on_behind_the_ids_so_far(error):
    first = ScriptedWorker([*begun(7, 8), error], name="a")
    second = ScriptedWorker([*begun(9), ended(3)], name="b")
    placement = ScriptedPlacement([ScriptedTokenizer()], [first, second])
    events = await played(placement)
    assert text(events) == "7 8 9 "
    assert second.sampled == [7, 8]
    assert sum(isinstance(event, Started) for event in events) == 1
    assert isinstance(events[-1], Finished)
    assert events[-1].usage.completion_tokens == 3
    assert placement.moves == 1


async def test_one_whose_sampling_cannot_be_carried_over_fails_and_says_to_try_again():
    first = ScriptedWorker([*begun(7), DEAD], name="a")
    placement = ScriptedPlacement([ScriptedTokenizer()], [first, ScriptedWorker([], name="b")])
    events = await played(placement, REQUEST)
    assert isinstance(events[-1], Failed)
    assert events[-1].error.row.retryable
    assert placement.moves == 0


async def test_where_moves_are_switched_off_it_fails_at_once():
    first = ScriptedWorker([*begun(7), GONE], name="a")
    placement = ScriptedPlacement([ScriptedTokenizer()], [first], move_timeout_s=0)
    assert (await played(placement))[-1] == Failed(GONE, (await played(placement))[-1].usage)


async def test_a_lone_worker_that_comes_back_goes_on_itself():
    only = ScriptedWorker([*begun(7), GONE], name="a")
    placement = ScriptedPlacement([ScriptedTokenizer()], [only])
    playing = asyncio.create_task(played(placement))
    await asyncio.sleep(0.05)
    placement.workers = []
    await asyncio.sleep(0.3)  # past the pause: nobody serves
    only.steps = [*begun(8), ended(2)]
    placement.workers = [only]
    placement.change.set()
    assert text(await playing) == "7 8 "
    assert only.sampled == [7]


async def test_where_no_worker_comes_in_time_the_failure_is_the_workers():
    only = ScriptedWorker([*begun(7), DEAD], name="a")
    placement = ScriptedPlacement([ScriptedTokenizer()], [only], move_timeout_s=0.3)
    playing = asyncio.create_task(played(placement))
    await asyncio.sleep(0.05)
    placement.workers = []
    events = await playing
    assert isinstance(events[-1], Failed)
    assert events[-1].error is DEAD
    assert text(events) == "7 "


async def test_workers_that_keep_failing_end_it_when_nothing_has_come_for_so_long():
    first = ScriptedWorker([WorkerStarted(0), GONE], name="a")
    second = ScriptedWorker([WorkerStarted(0), GONE], name="b")
    placement = ScriptedPlacement([ScriptedTokenizer()], [first, second], move_timeout_s=0.2)
    async with asyncio.timeout(3):
        events = await played(placement)
    assert events[-1] == Failed(GONE, events[-1].usage)


async def test_a_worker_that_refuses_what_is_moved_ends_it_in_its_own_words():
    first = ScriptedWorker([*begun(7), GONE], name="a")
    refusal = InvalidArgumentError("output_token_ids[0]", 7, "no placeholder")
    second = ScriptedWorker([refusal], name="b")
    placement = ScriptedPlacement([ScriptedTokenizer()], [first, second])
    events = await played(placement)
    assert events[-1] == Failed(refusal, events[-1].usage)


async def test_it_moves_as_often_as_it_gets_on():
    workers = [ScriptedWorker([*begun(n), GONE], name=f"{n}") for n in range(1, 9)]
    placement = ScriptedPlacement([ScriptedTokenizer()], workers, move_timeout_s=0.5)
    placement.workers = Rotating(workers)
    events = await played(placement)
    assert text(events).startswith("1 2 1 2 1 2 ")


class Rotating(list):
    """The first two only, over and over; the last one ends."""

    def __iter__(self):
        two = [self[0], self[1]]
        if len(self[0].sampled) > 6:
            two[0].steps = two[1].steps = [*begun(5), ended(9)]
        return iter(two)
