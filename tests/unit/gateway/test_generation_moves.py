"""A worker that refuses before anything was sampled: another one is tried, once."""

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
from services.gateway.events import Accepted, Failed, Finish, Finished, Started, Text
from services.gateway.interfaces import WorkerStarted
from services.gateway.registry import Registry
from services.runtime.error_table import Reason
from services.runtime.errors import (
    ContextLengthError,
    EngineDeadError,
    FeaturesMissingError,
    InternalError,
    InvalidArgumentError,
    OverloadedError,
    UnavailableError,
)

STARTED, END = WorkerStarted(2), WorkerFinished(0, Finish.LENGTH, None, 1)
GOOD = (STARTED, WorkerTokens(0, [7]), END)
FULL = OverloadedError("16 generations run and wait on this worker.", retry_delay_s=1.0)
GONE = UnavailableError("worker-0 ended its stream.", retry_delay_s=1.0)
DEAD = EngineDeadError("The engine ended.", retry_delay_s=1.0)


def worker(name, *steps, **fields):
    return ScriptedWorker(steps, name=name, **fields)


async def played(*workers, tokenizer=None, **fields):
    placement = ScriptedPlacement([tokenizer or ScriptedTokenizer()], workers)
    loop = asyncio.get_running_loop()
    limits = AdmissionLimits(max_running=4, max_waiting=4, queue_timeout_s=1.0)
    registry = Registry(placement, Admission(limits, loop.time), loop.time, 1.0)
    wanted = replace(REQUEST, **{"deadline_s": loop.time() + 60, **fields})
    async with asyncio.timeout(10):
        events = [numbered.event async for numbered in registry.stream(wanted)]
    assert placement.placed == [], "no worker is left with a generation that has ended"
    assert sum(one.running for one in workers) == 0
    return events


@pytest.mark.parametrize("refusal", [FULL, GONE, DEAD], ids=["overloaded", "gone", "engine-dead"])
async def test_another_worker_takes_what_one_refused_and_the_client_sees_no_trace(refusal):
    events = await played(worker("a", refusal), worker("b", *GOOD))
    assert [type(event) for event in events] == [Accepted, Started, Text, Finished]
    assert events[1].worker == "b"


async def test_the_refusal_is_passed_on_where_there_is_no_other_worker():
    events = await played(worker("a", FULL))
    assert isinstance(events[-1], Failed)
    assert events[-1].error is FULL


async def test_the_second_refusal_is_the_answer_and_a_third_worker_is_not_asked():
    third = worker("c", *GOOD)
    events = await played(worker("a", FULL), worker("b", DEAD), third)
    assert events[-1].error is DEAD
    assert third.asked_max_tokens == 0


@pytest.mark.parametrize(
    "steps",
    [(STARTED, DEAD), (STARTED, WorkerTokens(0, [7]), DEAD), (STARTED, GONE)],
    ids=["started", "tokens", "stream-gone"],
)
async def test_what_has_begun_is_not_moved(steps):
    other = worker("b", *GOOD)
    events = await played(worker("a", *steps), other)
    assert isinstance(events[-1], Failed)
    assert other.asked_max_tokens == 0


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(InvalidArgumentError("sampling.seed", 1, "2"), id="invalid"),
        pytest.param(ContextLengthError(9, 8), id="context"),
        pytest.param(InternalError(), id="internal"),
    ],
)
async def test_what_any_worker_would_refuse_is_not_tried_elsewhere(error):
    other = worker("b", *GOOD)
    events = await played(worker("a", error), other)
    assert events[-1].error is error
    assert other.asked_max_tokens == 0


async def test_the_room_is_that_of_the_worker_that_runs_it():
    other = worker("b", *GOOD, context_tokens=50)
    await played(worker("a", FULL), other)
    assert other.asked_max_tokens == 47


async def test_features_are_pushed_to_the_worker_that_runs_it():
    tokenizer = ScriptedTokenizer(digests=[b"d" * 32])
    events = await played(worker("a", FULL), worker("b", *GOOD), tokenizer=tokenizer)
    assert isinstance(events[-1], Finished)
    assert tokenizer.pushes == 2


async def test_a_worker_that_features_cannot_reach_is_left_for_another():
    class Choosy(ScriptedTokenizer):
        async def push_features(self, digests, worker, timeout_s):
            if worker == "a":
                raise GONE

    tokenizer = Choosy(digests=[b"d" * 32])
    events = await played(worker("a", *GOOD), worker("b", *GOOD), tokenizer=tokenizer)
    assert events[1].worker == "b"


async def test_features_missing_at_a_worker_are_pushed_again_not_moved():
    tokenizer, other = ScriptedTokenizer(digests=[b"d" * 32]), worker("b", *GOOD)
    first = worker("a", *GOOD, refusals=[FeaturesMissingError([b"d" * 32])])
    events = await played(first, other, tokenizer=tokenizer)
    assert events[1].worker == "a"
    assert tokenizer.pushes == 2


async def test_a_text_that_fails_is_no_reason_to_move():
    class Broken(ScriptedTokenizer):
        def open_text(self, options, choice_index, sink):
            text = super().open_text(options, choice_index, sink)
            asyncio.get_running_loop().call_soon(sink, UnavailableError("no tokenizer came back"))
            return text

    other = worker("b", *GOOD)
    events = await played(worker("a", 30.0), other, tokenizer=Broken())
    assert events[-1].error.reason is Reason.UNAVAILABLE
    assert other.asked_max_tokens == 0


async def test_no_detokeniser_is_an_error_before_acceptance():
    class Nobody(ScriptedTokenizer):
        def open_text(self, options, choice_index, sink):
            raise UnavailableError("No detokeniser is serving m.")

    [only] = await played(worker("a", *GOOD), tokenizer=Nobody())
    assert isinstance(only, Failed)
