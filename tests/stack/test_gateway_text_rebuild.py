"""The issue's own words: restart of a detokeniser in mid-stream, text identical to an undisturbed run.

Some of the texts have log-probabilities, which are identical, too.
"""

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from hotline.v1 import error_pb2
from several import TokenizerProcess, at, gateway_before, told
from sim_stack import SimStack, hello, started_tokenizer, started_worker

from services.gateway.upstream import Upstream
from services.runtime.lifecycle import Process

TOKENS = 150
STREAMS = 8


@pytest.fixture(scope="module")
async def worker() -> AsyncGenerator[Process, None]:
    process = await started_worker(sim_step_ms=4, max_num_seqs=64)
    yield process
    await process.stop()


@pytest.fixture(scope="module")
async def renderer(worker) -> AsyncGenerator[Process, None]:
    process = await started_tokenizer(worker.port, roles={"render"})
    yield process
    await process.stop()


@asynccontextmanager
async def stack_with(renderer, worker, detokenisers, **fields) -> AsyncGenerator[SimStack, None]:
    """A gateway before those detokeniser processes, which are killed at the end."""
    for process in detokenisers:
        await process.start()
    addresses = {f"detokeniser-{i}": one.address for i, one in enumerate(detokenisers)}
    try:
        # What has ended is not kept, so that the same ids run again: the simulator's text follows from them.
        async with gateway_before(
            {"renderer": at(renderer)} | addresses,
            {"worker-0": at(worker)},
            max_kept_count=0,
            **fields,
        ) as stack:
            yield stack
    finally:
        for process in detokenisers:
            await process.kill()


def detokenisers(tmp_path, count):
    return [TokenizerProcess(tmp_path, f"d{i}", ["detokenise"]) for i in range(count)]


def requests(stop=()):
    """Plain, split, and with two choices; the simulator's tokens follow from the generation's id."""
    made = []
    for number in range(STREAMS):
        request = hello(TOKENS, generation_id=f"rebuild-{number}")
        request.render.split_reasoning = number % 2 == 1
        request.sampling.n = 1 + (number % 4 == 3)
        request.sampling.stop.extend(stop)
        if number % 3 == 0:
            request.sampling.logprobs = 2
        made.append(request)
    return made


async def play(stack, wanted):
    return [asyncio.create_task(told(stack, request)) for request in wanted]


def links(stack):
    return {t.name: t.link for t in stack.app.pool.tokenizers}


async def half_way(stack):
    """Until every stream is open and some tokens have been told."""
    await stack.until(lambda: sum(link.open_count for link in links(stack).values()) >= STREAMS)
    await asyncio.sleep(
        TOKENS * 0.004 / 3
    )  # a third of the simulated time: where exactly does not matter


async def test_kill_9_with_another_one_there_changes_nothing_for_any_reader(
    renderer, worker, tmp_path
):
    both = detokenisers(tmp_path, 2)
    async with stack_with(renderer, worker, both) as stack:
        first = await told(stack, requests()[0])
        stop = first.text[0][len(first.text[0]) * 3 // 4 :][:5]
        undisturbed = [await task for task in await play(stack, requests([stop]))]
        assert undisturbed[0].end[1] == stop
        assert all(one.end for one in undisturbed)
        assert any(undisturbed[3].logprobs.values()), "they are compared, too"
        running = await play(stack, requests([stop]))
        await half_way(stack)
        counts = [links(stack)[f"detokeniser-{i}"].open_count for i in (0, 1)]
        assert all(counts), "both have texts"
        await both[0].kill()
        assert [await task for task in running] == undisturbed
        await stack.until(lambda: stack.app.registry.running_count == 0)


async def test_kill_9_of_the_only_one_and_its_return_is_a_pause_not_a_loss(
    renderer, worker, tmp_path
):
    [only] = detokenisers(tmp_path, 1)
    async with stack_with(renderer, worker, [only]) as stack:
        undisturbed = [await task for task in await play(stack, requests())]
        running = await play(stack, requests())
        await half_way(stack)
        await only.kill()
        await only.start()
        assert [await task for task in running] == undisturbed


@pytest.mark.slow
async def test_a_frozen_one_is_left_for_another_and_nothing_is_lost(
    renderer, worker, tmp_path, monkeypatch
):
    monkeypatch.setattr(Upstream.__init__, "__defaults__", (0.2, 1.0))
    both = detokenisers(tmp_path, 2)
    async with stack_with(renderer, worker, both) as stack:
        undisturbed = [await task for task in await play(stack, requests())]
        running = await play(stack, requests())
        await half_way(stack)
        both[0].signal(signal.SIGSTOP)
        assert [await task for task in running] == undisturbed


async def test_without_a_return_each_stream_ends_in_a_retryable_error_and_frees_its_slot(
    renderer, worker, tmp_path
):
    [only] = detokenisers(tmp_path, 1)
    async with stack_with(renderer, worker, [only], text_rebuild_timeout_s=0.3) as stack:
        running = await play(stack, requests())
        await half_way(stack)
        await only.kill()
        for task in running:
            failed = (await task).failed
            assert failed is not None
            assert failed.reason == error_pb2.ERROR_REASON_UNAVAILABLE
            assert failed.retryable
        worker_client = stack.app.pool.workers[0]
        await stack.until(lambda: worker_client.running_count == 0)
        assert not stack.app.pool.ready
