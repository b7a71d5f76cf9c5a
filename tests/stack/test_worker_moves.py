"""Engines and workers that die under streams: every token exactly once, in order, on another worker or on the same again."""

import asyncio
import secrets

import pytest
from several import at, gateway_before
from sim_stack import LIMIT_S, expected_text, hello, started_tokenizer, started_worker, text_of

STREAMS, TOKENS = 24, 120


@pytest.fixture
async def workers():
    made = [await started_worker(name=f"worker-{n}", sim_step_ms=8) for n in range(2)]
    yield made
    for worker in made:
        await worker.stop()


@pytest.fixture
async def stack(workers):
    addresses = {f"worker-{n}": at(worker) for n, worker in enumerate(workers)}
    tokenizer = await started_tokenizer(workers[0].port, workers=addresses)
    async with gateway_before({"tokenizer-0": at(tokenizer)}, addresses) as running:
        yield running
    await tokenizer.stop()


async def streamed(stack, count: int = STREAMS):
    """Streams under way, by name, each after some tokens."""
    begun = [asyncio.Event() for _ in range(count)]

    async def one(name: str, event: asyncio.Event):
        events = []
        async for each in stack.inference.Generate(
            hello(TOKENS, generation_id=name), timeout=LIMIT_S
        ):
            events.append(each)
            if len(events) == 8:
                event.set()
        return events

    names = [secrets.token_hex(6) for _ in range(count)]
    tasks = {
        name: asyncio.create_task(one(name, event))
        for name, event in zip(names, begun, strict=True)
    }
    await asyncio.gather(*(event.wait() for event in begun))
    return tasks


async def all_are_whole(tasks) -> None:
    for name, task in tasks.items():
        events = await task
        assert events[-1].HasField("finished"), events[-1]
        assert events[-1].finished.usage.completion_tokens == TOKENS
        assert text_of(events) == expected_text(name, TOKENS)
        sequences = [event.sequence for event in events]
        assert sequences == sorted(set(sequences))
        assert sum(event.HasField("started") for event in events) == 1


def moves(stack) -> float:
    return stack.app.metrics.registry.get_sample_value("hotline_gateway_moves_total")


async def test_streams_of_a_worker_that_goes_go_on_on_the_other_one(stack, workers):
    tasks = await streamed(stack)
    await workers[0].stop()
    await all_are_whole(tasks)
    assert moves(stack) > 0
    assert stack.app.admission.seat_count == 0


async def test_streams_of_engines_that_die_one_after_the_other_go_on_where_one_lives(
    stack, workers
):
    tasks = await streamed(stack)
    for worker in workers:
        engine_of(worker).kill()
        await asyncio.sleep(0.3)
    await all_are_whole(tasks)
    assert moves(stack) >= STREAMS


async def test_streams_wait_where_no_worker_is_left_until_one_is_back(stack, workers):
    tasks = await streamed(stack, 6)
    addresses = [at(worker) for worker in workers]
    for worker in workers:
        await worker.stop()
    await asyncio.sleep(0.5)
    assert not any(task.done() for task in tasks.values())
    workers[1] = await started_worker(addresses[1], name="worker-1", sim_step_ms=8)
    await all_are_whole(tasks)


async def test_a_cancel_while_it_waits_for_a_worker_ends_it_at_once(stack, workers):
    tasks = await streamed(stack, 1)
    for worker in workers:
        await worker.stop()
    await asyncio.sleep(0.3)
    (name,) = tasks
    assert stack.app.registry.cancel("anonymous", name)
    events = await asyncio.wait_for(tasks[name], 5)
    assert events[-1].HasField("finished")


def engine_of(worker):
    return worker._service._engine
