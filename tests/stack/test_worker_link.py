"""The gateway's one GenerateMany stream to a worker: everybody gets his own steps, ends are typed, it opens again."""

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager

import pytest
from hotline.v1 import sampling_pb2, worker_pb2
from sim_stack import LIMIT_S, MODEL, started_worker

from services.gateway.events import Finish
from services.gateway.interfaces import WorkerEvent, WorkerFinished, WorkerStarted, WorkerTokens
from services.gateway.upstream import Upstream
from services.gateway.worker_client import WorkerClient
from services.gateway.worker_link import WorkerLink
from services.runtime.channel import open_channel
from services.runtime.error_table import Reason
from services.runtime.errors import ServiceError
from services.runtime.settings import environment
from services.worker.model import read_model
from services.worker.sim_tokens import trace_token

ORDINARY = read_model(MODEL, {}).ordinary_ids


class Listener:
    """Collects what a generation is told."""

    def __init__(self) -> None:
        self.started = False
        self.ids: dict[int, list[int]] = {}
        self.ends: dict[int, WorkerFinished] = {}
        self.error: ServiceError | None = None
        self.heard = asyncio.Event()
        self.over = asyncio.Event()
        self.choice_count = 1

    def __call__(self, event: WorkerEvent | ServiceError) -> None:
        assert not self.over.is_set(), "told after its end"
        if isinstance(event, WorkerStarted):
            self.started = True
        elif isinstance(event, WorkerTokens):
            self.ids.setdefault(event.choice_index, []).extend(event.token_ids)
            self.heard.set()
        elif isinstance(event, WorkerFinished):
            self.ends[event.choice_index] = event
            if len(self.ends) == self.choice_count:
                self.over.set()
        else:
            self.error = event
            self.over.set()


def request(name: str, max_tokens: int = 4000, **sampling: object):
    return worker_pb2.WorkerGenerateRequest(
        generation_id=name,
        prompt_token_ids=[5, 6, 7],
        sampling=sampling_pb2.SamplingParameters(
            max_tokens=max_tokens, ignore_eos=True, **sampling
        ),
    )


def begun(link: WorkerLink, name: str, max_tokens: int = 4000, **sampling: object):
    """A generation, and who listens to it."""
    listener = Listener()
    listener.choice_count = sampling.get("n", 1)
    message = request(name, max_tokens, **sampling)
    return link.begin(message, "", listener.choice_count, listener), listener


async def over(*listeners: Listener) -> None:
    async with asyncio.timeout(LIMIT_S):
        for listener in listeners:
            await listener.over.wait()


async def heard(*listeners: Listener) -> None:
    async with asyncio.timeout(LIMIT_S):
        for listener in listeners:
            await listener.heard.wait()


def expected(name: str, count: int, choice: int = 0) -> list[int]:
    return [trace_token(name, choice, position, ORDINARY) for position in range(count)]


async def until(condition, limit_s: float = LIMIT_S) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def linked(**settings: object):
    """A simulated worker, and a link to it."""
    worker = await started_worker(**settings)
    async with open_channel(f"127.0.0.1:{worker.port}") as channel:
        link = WorkerLink("worker-0", channel)
        try:
            yield worker, link
        finally:
            await link.close()
            await worker.stop()


def running(worker) -> int:
    """Generations in the engine of a worker in this process."""
    load = worker._service._engine.load()
    return load.running + load.waiting


async def test_sixty_four_generations_at_once_each_get_their_own_ids():
    async with linked(sim_step_ms=2, max_num_seqs=64) as (_, link):
        pairs = [begun(link, f"g{number}", 50) for number in range(64)]
        assert link.open_count == 64
        await over(*(listener for _, listener in pairs))
        for number, (_, listener) in enumerate(pairs):
            assert listener.ids == {0: expected(f"g{number}", 50)}
            assert listener.ends[0].reason is Finish.LENGTH
            assert listener.started
        assert link.open_count == 0


async def test_every_choice_has_its_own_ids_and_its_own_end():
    async with linked(sim_step_ms=2) as (_, link):
        _, listener = begun(link, "g", 20, n=3)
        await over(listener)
        assert listener.ids == {index: expected("g", 20, index) for index in range(3)}
        assert link.open_count == 0


async def test_closing_one_frees_its_slot_within_a_step_and_leaves_the_others():
    async with linked(sim_step_ms=20) as (worker, link):
        closed, first = begun(link, "first")
        _, second = begun(link, "second", 60)
        await heard(first, second)
        closed.close()
        closed.close()
        told = len(first.ids[0])
        await until(lambda: running(worker) == 1, limit_s=0.7)  # (20 + 50) ms with tenfold slack
        await over(second)
        assert second.ids == {0: expected("second", 60)}
        assert len(first.ids[0]) == told
        assert not first.over.is_set()


async def test_a_refusal_is_told_to_its_generation_alone_with_reason_field_and_delay():
    async with linked(sim_step_ms=5, max_num_seqs=1, max_waiting=0) as (_, link):
        _, wrong = begun(link, "wrong", temperature=-1)
        await over(wrong)
        assert wrong.error is not None
        assert (wrong.error.reason, wrong.error.field) == (
            Reason.INVALID_ARGUMENT,
            "sampling.temperature",
        )
        _, runs = begun(link, "runs", 40)
        await heard(runs)
        _, late = begun(link, "late")
        await over(late, runs)
        assert late.error is not None
        assert late.error.reason is Reason.OVERLOADED
        assert late.error.retry_delay_s
        assert runs.ids == {0: expected("runs", 40)}


async def test_when_the_engine_dies_its_generations_hear_that_and_not_less():
    async with linked(sim_step_ms=5) as (worker, link):
        pairs = [begun(link, f"g{number}") for number in range(3)]
        await heard(*(listener for _, listener in pairs))
        worker._service._engine.kill()
        await over(*(listener for _, listener in pairs))
        assert {listener.error.reason for _, listener in pairs} == {Reason.ENGINE_DEAD}


async def test_the_load_is_known_before_anything_runs_and_follows():
    async with linked(sim_step_ms=5, max_num_seqs=2) as (_, link):
        assert link.load.running == 0
        pairs = [begun(link, f"g{number}") for number in range(3)]
        await until(lambda: (link.load.running, link.load.waiting) == (2, 1))
        assert link.load.kv_usage_ratio > 0
        for handle, _ in pairs:
            handle.close()
        await until(lambda: link.load.running == link.load.waiting == 0)


async def test_a_draining_worker_finishes_what_runs_and_refuses_what_comes():
    async with linked(sim_step_ms=10) as (worker, link):
        worker._settings = worker._settings.model_copy(update={"drain_grace_s": 20.0})
        _, runs = begun(link, "runs", 60)
        await heard(runs)
        stopping = asyncio.ensure_future(worker.stop())
        await until(lambda: worker.state.value == "DRAINING")
        await asyncio.sleep(0.05)
        _, late = begun(link, "late")
        await over(late, runs)
        assert late.error is not None
        assert late.error.reason is Reason.UNAVAILABLE
        assert runs.ids == {0: expected("runs", 60)}
        await asyncio.wait_for(stopping, LIMIT_S)


async def test_an_idle_link_does_not_hold_the_workers_stop():
    async with linked() as (worker, link):
        _, listener = begun(link, "g", 1)
        await over(listener)
        worker._settings = worker._settings.model_copy(update={"drain_grace_s": 20.0})
        await asyncio.wait_for(worker.stop(), 5)


async def test_a_fault_of_who_listens_ends_that_generation_alone():
    async with linked(sim_step_ms=5) as (worker, link):
        errors = []

        def broken(event: WorkerEvent | ServiceError) -> None:
            if isinstance(event, WorkerTokens):
                raise ZeroDivisionError
            errors.append(event)

        link.begin(request("broken"), "", 1, broken)
        _, other = begun(link, "other", 40)
        await over(other)
        assert other.ids == {0: expected("other", 40)}
        assert [e.reason for e in errors if isinstance(e, ServiceError)] == [Reason.INTERNAL]
        await until(lambda: running(worker) == 0)


async def test_a_worker_that_is_not_there_is_unavailable():
    async with open_channel("127.0.0.1:1") as channel:
        link = WorkerLink("worker-0", channel)
        _, listener = begun(link, "g")
        await over(listener)
        assert listener.error is not None
        assert listener.error.reason is Reason.UNAVAILABLE
        await link.close()


@asynccontextmanager
async def worker_process(folder):
    """A worker as a process of its own, to be killed or frozen."""
    address = f"unix:{folder}/worker"
    variables = environment(
        "HOTLINE_WORKER_",
        {
            "address": address,
            "engine": "sim",
            "model_path": str(MODEL),
            "sim_step_ms": 5,
            "exit_with_parent": True,
        },
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.worker"),
        env={**os.environ, **variables},
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield address, process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def watched(address: str):
    """A client that follows the worker's health, with quick probes."""

    async def nothing() -> None: ...

    upstream = Upstream("worker-0", address, probe_interval_s=0.2, probe_timeout_s=0.5)
    client = WorkerClient(upstream)
    watching = asyncio.create_task(upstream.watch(client.refresh, nothing))
    try:
        await until(lambda: upstream.serving)
        yield client
    finally:
        watching.cancel()
        await asyncio.wait((watching,))
        await client.link.close()
        await upstream.close()


async def test_a_worker_that_is_killed_ends_its_generations_with_a_retryable_reason(tmp_path):
    async with worker_process(tmp_path) as (address, process), watched(address) as client:
        pairs = [begun(client.link, f"g{number}") for number in range(16)]
        await heard(*(listener for _, listener in pairs))
        process.kill()
        async with asyncio.timeout(5):
            for _, listener in pairs:
                await listener.over.wait()
        assert all(listener.error.row.retryable for _, listener in pairs)
        assert {listener.error.reason for _, listener in pairs} == {Reason.UNAVAILABLE}
        assert client.running_count == 0


async def test_a_frozen_worker_ends_its_generations_at_once_and_serves_again_when_it_thaws(
    tmp_path,
):
    async with worker_process(tmp_path) as (address, process), watched(address) as client:
        _, listener = begun(client.link, "frozen")
        await heard(listener)
        process.send_signal(signal.SIGSTOP)
        async with asyncio.timeout(5):
            await listener.over.wait()
        assert listener.error is not None
        assert listener.error.reason is Reason.UNAVAILABLE
        process.send_signal(signal.SIGCONT)
        await until(lambda: client.upstream.serving)
        # The thawed worker has dropped what it ran: the id is free again.
        again = Listener()
        async with asyncio.timeout(LIMIT_S):
            while again.error is not None or not again.over.is_set():
                _, again = begun(client.link, "frozen", 20)
                await again.over.wait()
        assert again.ids == {0: expected("frozen", 20)}


async def test_a_broken_stream_is_opened_again_with_the_next_generation():
    async with linked(sim_step_ms=5) as (worker, link):
        _, first = begun(link, "first")
        await heard(first)
        link._queue(worker_pb2.GenerateManyInput(handle=99))  # against the rules
        await over(first)
        assert first.error is not None
        assert first.error.reason is Reason.UNAVAILABLE  # the request is not to blame
        await until(lambda: running(worker) == 0)
        _, second = begun(link, "second", 10)
        await over(second)
        assert second.ids == {0: expected("second", 10)}


@pytest.mark.parametrize("opened", [True, False])
async def test_what_is_begun_and_closed_in_one_breath_leaves_nothing(opened: bool):
    async with linked(sim_step_ms=5) as (worker, link):
        if opened:
            link.open()
            await until(lambda: link.open_count == 0)
        handle, listener = begun(link, "g")
        handle.close()
        _, other = begun(link, "other", 10)
        await over(other)
        await until(lambda: running(worker) == 0)
        assert not listener.heard.is_set()
