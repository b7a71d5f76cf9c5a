"""Several generations under one request: read together, ended together."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TypeAlias

from services.gateway.events import (
    Accepted,
    ChoiceEnd,
    Event,
    Failed,
    Finished,
    Heartbeat,
    Numbered,
    Text,
    Timings,
    Usage,
)

_Stream: TypeAlias = AsyncGenerator[Numbered, None]
_Next: TypeAlias = "asyncio.Future[Numbered]"


async def as_one(
    streams: Sequence[_Stream], choices_each: int
) -> AsyncGenerator[Text | Heartbeat | Finished, None]:
    """Text and end of several generations as those of one, whose choices are all of theirs, in order.

    Its usage is the sum of theirs, its timings those of the last to end. Raises as `side_by_side` does.
    """
    ends: dict[int, ChoiceEnd] = {}
    usage, timings = Usage(), Timings()
    async with aclosing(side_by_side(streams)) as events:
        async for index, event in events:
            first = index * choices_each
            if isinstance(event, Text):
                yield replace(event, choice_index=first + event.choice_index) if first else event
            elif isinstance(event, Heartbeat):
                yield event
            elif isinstance(event, Finished):
                for end in event.choices:
                    place = first + end.choice_index
                    ends[place] = replace(end, choice_index=place)
                usage, timings = _sum(usage, event.usage), event.timings
    yield Finished([ends[place] for place in sorted(ends)], usage, timings)


async def side_by_side(streams: Sequence[_Stream]) -> AsyncGenerator[tuple[int, Event], None]:
    """The events of all streams, each with its stream's index, until all have ended.

    No stream is read past its begin until all have begun, so that what makes one of them impossible is known before
    the first text of another; what waits meanwhile is merged in its mailbox. Raises the error of the first that
    fails; then, and whenever this is closed, all of them are closed.
    """
    if len(streams) > 1:
        events = _several(streams)
        async with aclosing(events):
            async for indexed in events:
                yield indexed
        return
    async with aclosing(streams[0]) as stream:  # without a task for each event
        async for numbered in stream:
            yield 0, _checked(numbered)


async def _several(streams: Sequence[_Stream]) -> AsyncGenerator[tuple[int, Event], None]:
    awaited: dict[_Next, int] = {}
    begun: set[int] = set()
    held: list[int] = []

    def read_on(*indices: int) -> None:
        awaited.update({asyncio.ensure_future(anext(streams[index])): index for index in indices})

    try:
        read_on(*range(len(streams)))
        while awaited:
            done, _ = await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            for future in done:
                index = awaited.pop(future)
                event = _checked(future.result())
                if isinstance(event, Heartbeat):
                    read_on(index)
                    if len(begun) == len(streams):
                        yield index, event
                    continue
                yield index, event
                if isinstance(event, Finished):
                    begun.add(index)
                elif isinstance(event, Accepted) or index in begun:
                    read_on(index)
                else:
                    begun.add(index)
                    held.append(index)
            if len(begun) == len(streams):
                read_on(*held)
                held.clear()
    finally:
        ending = asyncio.create_task(_end_all(awaited, streams), name="ends of a call")
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:  # once more: all of them are ended nevertheless
            await asyncio.wait((ending,))
            raise


async def _end_all(awaited: dict[_Next, int], streams: Sequence[_Stream]) -> None:
    await _end(awaited)
    for stream in streams:
        await stream.aclose()


async def _end(awaited: dict[_Next, int]) -> None:
    """Cancel all reads at once, which ends their generations, and wait for them."""
    for future in awaited:
        future.cancel()
    if awaited:
        await asyncio.wait(awaited)
    for future in awaited:
        if not future.cancelled():
            future.exception()  # nobody else will look at it: the first failure is the answer


def _checked(numbered: Numbered) -> Event:
    if isinstance(numbered.event, Failed):
        raise numbered.event.error
    return numbered.event


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(
        one.prompt_tokens + other.prompt_tokens,
        one.completion_tokens + other.completion_tokens,
        one.cached_tokens + other.cached_tokens,
    )
