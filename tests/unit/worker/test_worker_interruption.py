"""Ending a generation from outside."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from services.runtime.errors import EngineDeadError
from services.worker.engine import Finished, Reason, Started, Step, Tokens
from services.worker.interruption import InterruptibleSteps


class Source:
    """An engine's steps: these, then silence until it is closed."""

    def __init__(self, *steps: Step, silent: bool = True) -> None:
        self._steps, self._silent = steps, silent
        self.closed = asyncio.Event()

    async def run(self) -> AsyncGenerator[Step, None]:
        try:
            for step in self._steps:
                yield step
            if self._silent:
                await asyncio.Event().wait()
        finally:
            self.closed.set()


async def test_steps_pass_unchanged_to_their_end():
    steps = [Started(3, 0), Tokens(0, 0, [1]), Finished(0, Reason.LENGTH, 1)]
    source = Source(*steps, silent=False)
    assert [s async for s in InterruptibleSteps(source.run(), 1, 3).run(5)] == steps


async def test_an_interrupt_ends_a_silent_engine_with_what_it_gave():
    source = Source(Started(3, 0), Tokens(0, 0, [1, 2]))
    steps = InterruptibleSteps(source.run(), 1, 3)
    asyncio.get_running_loop().call_later(0.01, steps.interrupt, Reason.CANCELLED)
    got = [step async for step in steps.run(0)]
    assert got[-1] == Finished(0, Reason.CANCELLED, 2)
    assert source.closed.is_set()


async def test_choices_that_ended_by_themselves_keep_their_reason():
    source = Source(Started(3, 0), Finished(1, Reason.STOP, 0, 9))
    got = [step async for step in InterruptibleSteps(source.run(), 2, 3).run(0.01)]
    assert got[1:] == [Finished(1, Reason.STOP, 0, 9), Finished(0, Reason.TIME_LIMIT, 0)]


async def test_the_slot_is_free_while_a_slow_reader_still_holds_a_step():
    source = Source(Started(3, 0))
    async with aclosing(InterruptibleSteps(source.run(), 1, 3).run(0.01)) as steps:
        await anext(steps)
        await asyncio.wait_for(source.closed.wait(), 1)
        assert [step async for step in steps] == [Finished(0, Reason.TIME_LIMIT, 0)]


async def test_the_first_of_two_interrupts_counts():
    source = Source()
    steps = InterruptibleSteps(source.run(), 1, 3)
    loop = asyncio.get_running_loop()
    loop.call_later(0.01, steps.interrupt, Reason.CANCELLED)
    loop.call_later(0.01, steps.interrupt, Reason.TIME_LIMIT)
    assert [step async for step in steps.run(0)] == [
        Started(3, 0),
        Finished(0, Reason.CANCELLED, 0),
    ]


async def test_cancelling_the_consumer_closes_the_engines_steps():
    source = Source(Started(3, 0))

    async def consume() -> None:
        async with aclosing(InterruptibleSteps(source.run(), 1, 3).run(0)) as steps:
            async for _ in steps:
                pass

    task = asyncio.create_task(consume())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert source.closed.is_set()


async def test_closing_the_stream_between_two_steps_closes_the_engines_steps():
    source = Source(Started(3, 0), Tokens(0, 0, [1]))
    async with aclosing(InterruptibleSteps(source.run(), 1, 3).run(0)) as steps:
        await anext(steps)
    assert source.closed.is_set()


async def test_a_timeout_of_the_engines_own_is_not_taken_for_ours():
    async def broken() -> AsyncGenerator[Step, None]:
        yield Started(3, 0)
        raise TimeoutError("the engine's")

    with pytest.raises(TimeoutError, match="the engine's"):
        _ = [step async for step in InterruptibleSteps(broken(), 1, 3).run(5)]


async def test_a_failure_from_outside_is_raised_and_frees_the_slot():
    source = Source(Started(3, 0), Tokens(0, 0, [1]))
    steps = InterruptibleSteps(source.run(), 1, 3)
    asyncio.get_running_loop().call_later(0.01, steps.fail, EngineDeadError("it ended"))
    async with aclosing(steps.run(0)) as run:
        assert [await anext(run), await anext(run)] == [Started(3, 0), Tokens(0, 0, [1])]
        with pytest.raises(EngineDeadError, match="it ended"):
            await anext(run)
    assert source.closed.is_set()


async def test_a_failure_reaches_a_reader_that_is_busy_with_a_step():
    source = Source(Started(3, 0), Tokens(0, 0, [1]))
    steps = InterruptibleSteps(source.run(), 1, 3)
    async with aclosing(steps.run(0)) as run:
        await anext(run)
        steps.fail(EngineDeadError("it ended"))
        await asyncio.wait_for(source.closed.wait(), 1)
        with pytest.raises(EngineDeadError):
            await anext(run)


async def test_an_interrupt_before_a_failure_counts():
    steps = InterruptibleSteps(Source(Started(3, 0)).run(), 1, 3)
    async with aclosing(steps.run(0)) as run:
        await anext(run)
        steps.interrupt(Reason.CANCELLED)
        steps.fail(EngineDeadError("it ended"))
        assert [step async for step in run] == [Finished(0, Reason.CANCELLED, 0)]
