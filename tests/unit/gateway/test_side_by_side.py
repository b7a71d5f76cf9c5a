"""Generations side by side: all their events, one failure for all, nothing left running."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest

from services.gateway.events import (
    Accepted,
    ChoiceEnd,
    Event,
    Failed,
    Finish,
    Finished,
    Heartbeat,
    Numbered,
    Started,
    State,
    Text,
    Timings,
    Usage,
)
from services.gateway.side_by_side import as_one, side_by_side
from services.runtime.errors import ContextLengthError, OverloadedError, ServiceError

ACCEPTED, STARTED = Accepted("g", "m", 3, 0), Started("w", 0)
FINISHED = Finished([ChoiceEnd(0, Finish.STOP)], Usage(), Timings())
LONG = ContextLengthError(9, 8)


class Scripted:
    """A stream that plays events; an asyncio.Event among them is waited for, an exception is raised."""

    def __init__(self, *script: Event | asyncio.Event | Exception) -> None:
        self.script, self.closed = script, False
        self.waiting = asyncio.Event()

    async def stream(self) -> AsyncGenerator[Numbered, None]:
        try:
            for number, step in enumerate(self.script, 1):
                if isinstance(step, asyncio.Event):
                    self.waiting.set()
                    await step.wait()
                elif isinstance(step, Exception):
                    raise step
                else:
                    yield Numbered(number, step)
        finally:
            self.closed = True


async def played(*scripts: Scripted) -> list[tuple[int, Event]]:
    async with asyncio.timeout(5):
        return [indexed async for indexed in side_by_side([s.stream() for s in scripts])]


def of(index: int, indexed: Sequence[tuple[int, Event]]) -> list[Event]:
    return [event for at, event in indexed if at == index]


@pytest.mark.parametrize("count", [1, 2, 5])
async def test_every_event_of_every_stream_arrives_in_its_order(count):
    scripts = [
        Scripted(ACCEPTED, STARTED, Text(0, f"{i}a"), Text(0, f"{i}b"), FINISHED)
        for i in range(count)
    ]
    indexed = await played(*scripts)
    for index, script in enumerate(scripts):
        assert of(index, indexed) == list(script.script)
        assert script.closed


async def test_no_text_comes_before_all_have_begun():
    late = asyncio.Event()
    quick = Scripted(ACCEPTED, STARTED, Text(0, "quick"), FINISHED)
    slow = Scripted(late, ACCEPTED, STARTED, FINISHED)
    events = side_by_side([quick.stream(), slow.stream()])
    async with asyncio.timeout(5):
        assert [await anext(events), await anext(events)] == [(0, ACCEPTED), (0, STARTED)]
        late.set()
        rest = [indexed async for indexed in events]
    first_text = rest.index((0, Text(0, "quick")))
    assert (1, STARTED) in rest[:first_text]


async def test_a_stream_that_ends_without_a_begin_holds_up_nobody():
    indexed = await played(
        Scripted(ACCEPTED, FINISHED), Scripted(ACCEPTED, STARTED, Text(0, "x"), FINISHED)
    )
    assert of(1, indexed)[-2:] == [Text(0, "x"), FINISHED]


@pytest.mark.parametrize(
    "failing",
    [
        pytest.param([Failed(LONG)], id="told"),
        pytest.param([ACCEPTED, Failed(LONG)], id="told after acceptance"),
        pytest.param([LONG], id="raised"),
    ],
)
@pytest.mark.parametrize("place", [0, 1])
async def test_one_that_fails_ends_all_before_any_text(failing, place):
    never = asyncio.Event()
    other = Scripted(ACCEPTED, STARTED, Text(0, "x"), never)
    scripts = [Scripted(*failing), other] if place == 0 else [other, Scripted(*failing)]
    seen: list[Event] = []

    async def read() -> None:
        async with asyncio.timeout(5):
            async for _, event in side_by_side([s.stream() for s in scripts]):
                seen.append(event)

    with pytest.raises(ContextLengthError) as raised:
        await read()
    assert raised.value is LONG
    assert not [event for event in seen if isinstance(event, Text)]
    assert all(script.closed for script in scripts)


async def test_of_two_failures_one_is_the_answer_and_neither_is_lost_in_a_warning():
    errors: list[ServiceError] = [LONG, OverloadedError("8 wait.")]
    with pytest.raises((ContextLengthError, OverloadedError)):
        await played(*(Scripted(Failed(error)) for error in errors))
    with pytest.raises((ContextLengthError, OverloadedError)):
        await played(*map(Scripted, errors))


@pytest.mark.parametrize("count", [1, 3])
async def test_who_stops_reading_ends_them_all(count):
    scripts = [Scripted(ACCEPTED, STARTED, asyncio.Event()) for _ in range(count)]
    events = side_by_side([s.stream() for s in scripts])
    async with asyncio.timeout(5):
        for _ in range(2 * count):
            await anext(events)
        await events.aclose()
    assert all(script.closed for script in scripts)


async def test_a_reader_that_is_cancelled_ends_them_all():
    scripts = [Scripted(ACCEPTED, STARTED, asyncio.Event()) for _ in range(3)]
    reader = asyncio.create_task(played(*scripts))
    async with asyncio.timeout(5):
        for script in scripts:
            await script.waiting.wait()
        reader.cancel()
        await asyncio.wait((reader,))
    assert reader.cancelled()


async def test_several_generations_are_one_whose_choices_and_usage_are_all_of_theirs():
    def one(name: str, tokens: int) -> Scripted:
        ends = [ChoiceEnd(0, Finish.STOP), ChoiceEnd(1, Finish.LENGTH)]
        return Scripted(
            ACCEPTED,
            STARTED,
            Text(0, name + "0"),
            Text(1, name + "1"),
            Finished(ends, Usage(tokens, 2 * tokens, 3), Timings()),
        )

    scripts = [one("a", 5), one("b", 7)]
    events = [event async for event in as_one([s.stream() for s in scripts], choices_each=2)]
    texts = {e.choice_index: e.text for e in events if isinstance(e, Text)}
    assert texts == {0: "a0", 1: "a1", 2: "b0", 3: "b1"}
    [end] = [event for event in events if isinstance(event, Finished)]
    assert events[-1] is end
    assert [(e.choice_index, e.reason) for e in end.choices] == [
        (0, Finish.STOP),
        (1, Finish.LENGTH),
        (2, Finish.STOP),
        (3, Finish.LENGTH),
    ]
    assert end.usage == Usage(12, 24, 6)


async def test_heartbeats_are_no_begin_and_are_told_once_all_have_begun():
    gate = asyncio.Event()
    beat = Heartbeat(State.PREFILL)
    first = Scripted(beat, ACCEPTED, STARTED, beat, FINISHED)
    second = Scripted(ACCEPTED, gate, STARTED, FINISHED)
    playing = asyncio.ensure_future(played(first, second))
    await asyncio.wait_for(second.waiting.wait(), 5)
    await asyncio.sleep(0.01)
    gate.set()
    events = await playing
    beats = [place for place, (_, event) in enumerate(events) if event == beat]
    begins = [place for place, (_, event) in enumerate(events) if event == STARTED]
    assert len(beats) == 1
    assert beats[0] > max(begins)
