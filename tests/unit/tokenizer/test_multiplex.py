import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import TypeVar

import pytest

from services.runtime.drain import Drain
from services.tokenizer.multiplex import multiplex

In = TypeVar("In")
Out = TypeVar("Out")


def answered(
    requests: AsyncIterator[In],
    process: Callable[[list[In]], Awaitable[Out | None]],
    queue_limit: int,
    drain: Drain | None = None,
    is_idle: Callable[[], bool] = lambda: True,
) -> AsyncGenerator[Out, None]:
    return multiplex(requests, process, queue_limit, drain or Drain(), is_idle)


async def numbers(count: int) -> AsyncGenerator[int, None]:
    for number in range(count):
        yield number


async def test_every_message_is_worked_on_in_order() -> None:
    async def process(batch: list[int]) -> list[int]:
        return batch

    answers = [answer async for answer in answered(numbers(100), process, queue_limit=8)]
    assert [number for answer in answers for number in answer] == list(range(100))


async def test_what_comes_while_work_is_under_way_is_worked_on_together() -> None:
    batches: list[list[int]] = []
    begun, all_read = asyncio.Event(), asyncio.Event()

    async def requests() -> AsyncGenerator[int, None]:
        async for number in numbers(5):
            yield number
            await begun.wait()
        all_read.set()

    async def process(batch: list[int]) -> int:
        batches.append(batch)
        begun.set()
        await all_read.wait()
        return len(batch)

    assert [answer async for answer in answered(requests(), process, 8)] == [1, 4]
    assert batches == [[0], [1, 2, 3, 4]]


async def test_no_more_than_the_limit_is_read_ahead() -> None:
    read: list[int] = []
    go_on = asyncio.Event()

    async def requests() -> AsyncGenerator[int, None]:
        async for number in numbers(20):
            read.append(number)
            yield number

    async def process(batch: list[int]) -> int:
        await go_on.wait()
        return len(batch)

    answers = answered(requests(), process, queue_limit=3)
    first = asyncio.ensure_future(anext(answers))
    for _ in range(50):  # turns of the loop, not time
        await asyncio.sleep(0)
    assert len(read) <= 3 + 3 + 1  # worked on, read ahead, in the reader's hand
    go_on.set()
    total = await first + sum([answer async for answer in answers])
    assert total == 20


async def test_no_answer_is_sent_where_there_is_nothing_to_say() -> None:
    async def process(batch: list[int]) -> int | None:
        return None if batch[0] < 4 else 7

    assert [answer async for answer in answered(numbers(5), process, 1)] == [7]


async def test_an_error_of_the_work_ends_the_stream_and_the_reader() -> None:
    closed = asyncio.Event()

    async def requests() -> AsyncGenerator[int, None]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            closed.set()

    async def process(batch: list[int]) -> int:
        raise ValueError("broken")

    stream = requests()
    with pytest.raises(ValueError, match="broken"):
        await anext(answered(stream, process, 8))
    await asyncio.wait_for(closed.wait(), 5)


async def test_an_error_of_the_requests_is_raised_after_what_came_before_it() -> None:
    async def requests() -> AsyncGenerator[int, None]:
        yield 1
        raise ValueError("cut")

    async def process(batch: list[int]) -> list[int]:
        return batch

    answers = answered(requests(), process, 8)
    assert await anext(answers) == [1]
    with pytest.raises(ValueError, match="cut"):
        await anext(answers)


async def test_closing_the_answers_ends_the_reader() -> None:
    closed = asyncio.Event()

    async def requests() -> AsyncGenerator[int, None]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            closed.set()

    async def process(batch: list[int]) -> list[int]:
        return batch

    answers = answered(requests(), process, 8)
    assert await anext(answers) == [1]
    await answers.aclose()
    await asyncio.wait_for(closed.wait(), 5)


async def test_a_drain_ends_an_idle_stream_at_once() -> None:
    async def process(batch: list[int]) -> int:
        return len(batch)

    async def requests() -> AsyncGenerator[int, None]:
        yield 1
        await asyncio.Event().wait()

    drain = Drain()
    answers = answered(requests(), process, 8, drain)
    assert await anext(answers) == 1
    rest = asyncio.ensure_future(anext(answers, None))
    await asyncio.sleep(0)
    drain.ask()
    assert await asyncio.wait_for(rest, 5) is None
    assert not drain.waiting


async def test_a_drain_lets_a_busy_stream_go_on_until_it_is_idle() -> None:
    open_texts = {1}
    asked = asyncio.Event()

    async def requests() -> AsyncGenerator[int, None]:
        yield 1
        await asked.wait()
        yield 2
        await asyncio.Event().wait()

    async def process(batch: list[int]) -> list[int]:
        if 2 in batch:
            open_texts.clear()
        return batch

    drain = Drain()
    answers = answered(requests(), process, 8, drain, is_idle=lambda: not open_texts)
    assert await anext(answers) == [1]
    drain.ask()
    asked.set()
    assert await anext(answers) == [2]
    assert await anext(answers, None) is None


async def test_a_backlog_is_worked_off_without_new_messages_and_new_ones_join_in() -> None:
    batches: list[list[int]] = []
    waiting = 0

    async def process(batch: list[int]) -> list[int]:
        nonlocal waiting
        batches.append(batch)
        waiting = max(waiting + 3 * len(batch) - 1, 0)
        await asyncio.sleep(0)
        return batch

    drain = Drain()
    answers = multiplex(numbers(4), process, 8, drain, lambda: True, lambda: waiting, 100)
    assert [number async for answer in answers for number in answer] == [0, 1, 2, 3]
    assert waiting == 0
    assert batches.count([]) > 0


async def test_at_the_limit_of_the_backlog_nothing_more_is_taken() -> None:
    waiting, most = 0, 0

    async def process(batch: list[int]) -> list[int]:
        nonlocal waiting, most
        waiting = max(waiting + 10 * len(batch) - 1, 0)
        most = max(most, waiting)
        await asyncio.sleep(0)
        return batch

    answers = multiplex(numbers(40), process, 2, Drain(), lambda: True, lambda: waiting, 5)
    assert [number async for answer in answers for number in answer] == list(range(40))
    assert most <= 5 + 10 * 4
