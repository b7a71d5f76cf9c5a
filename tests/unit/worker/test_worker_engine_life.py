"""A worker whose simulated engine dies, hangs or does not start, over gRPC."""

import asyncio
import time

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from worker_calls import MODEL, MODEL_PATH, Client, failure, image
from worker_running import Running, StartWorker, sim_worker

from services.runtime.error_table import Reason
from services.runtime.lifecycle import Process, State
from services.worker.app import WorkerApp
from services.worker.settings import WorkerSettings
from services.worker.sim_tokens import trace_token

LONG = {"max_tokens": 8000, "ignore_eos": True}
SLOW_STEP = {"sim_step_ms": 5}


def expected(key: str, count: int) -> list[int]:
    return [trace_token(key, 0, position, MODEL.ordinary_ids) for position in range(count)]


async def health(client: Client) -> str:
    stub = health_pb2_grpc.HealthStub(client.channel)
    response = await stub.Check(health_pb2.HealthCheckRequest())
    name: str = health_pb2.HealthCheckResponse.ServingStatus.Name(response.status)
    return name


async def crash(running: Running, settle: bool = True) -> None:
    """Kill the engine under a generation, and see the generation end."""
    stream = asyncio.ensure_future(running.client.generate("victim", sampling=LONG))
    await running.client.until_running(1)
    running.engine.kill()
    error = await asyncio.wait_for(failure(stream), 1)
    assert error.reason is Reason.ENGINE_DEAD
    assert error.row.retryable
    assert error.retry_delay_s
    if settle:
        await running.client.until_state("SERVING")


async def test_when_the_engine_dies_its_generations_end_typed_and_the_next_are_served(
    start_worker: StartWorker,
):
    running = await start_worker(**SLOW_STEP)
    await crash(running)
    assert (await running.client.generate("next", sampling={"max_tokens": 5})).ids() == (
        expected("next", 5)
    )
    assert (await running.client.status()).engine_restart_count == 1
    assert await health(running.client) == "SERVING"
    assert not running.process.failed.is_set()


async def test_while_the_engine_is_down_health_and_status_say_so_and_calls_are_refused(
    start_worker: StartWorker,
):
    running = await start_worker(**SLOW_STEP)
    await crash(running)
    await crash(running, settle=False)  # the second crash waits a second
    await running.client.until_state("WARMING")
    assert await health(running.client) == "NOT_SERVING"
    status = await running.client.status()
    assert (status.serving_s, status.running, status.waiting) == (0, 0, 0)
    for call in (running.client.generate("next"), running.client.put(image(1))):
        error = await failure(call)
        assert (error.reason, bool(error.retry_delay_s)) == (Reason.UNAVAILABLE, True)
    await running.client.until_state("SERVING")
    assert await health(running.client) == "SERVING"
    assert (await running.client.status()).engine_restart_count == 2


async def test_an_idle_worker_whose_engine_dies_comes_back(start_worker: StartWorker):
    running = await start_worker()
    running.engine.kill()
    await running.client.until_state("WARMING", 1)
    await running.client.until_state("SERVING")
    assert (await running.client.generate(sampling={"max_tokens": 2})).ids() == expected("g", 2)


async def test_features_survive_the_engine(start_worker: StartWorker):
    running = await start_worker(**SLOW_STEP)
    picture = image(7)
    await running.client.put(picture)
    await crash(running)
    answer = await running.client.generate(
        ids=picture.prompt(), features=[picture.placed(1)], sampling={"max_tokens": 3}
    )
    assert answer.ids() == expected("g", 3)


async def test_a_generation_that_waits_for_its_turn_ends_with_the_engine_too(
    start_worker: StartWorker,
):
    running = await start_worker(sim_step_ms=20, max_num_seqs=1)
    calls = [
        asyncio.ensure_future(running.client.generate(name, sampling=LONG)) for name in ("a", "b")
    ]
    await running.client.until_running(2)
    running.engine.kill()
    for call in calls:
        assert (await failure(call)).reason is Reason.ENGINE_DEAD


async def test_a_generation_id_may_be_used_again_once_its_engine_has_died(
    start_worker: StartWorker,
):
    running = await start_worker(**SLOW_STEP)
    await crash(running)
    answer = await running.client.generate("victim", sampling={"max_tokens": 2})
    assert answer.ids() == expected("victim", 2)


async def test_a_restart_that_fails_is_tried_again():
    async with sim_worker(sim_fault={"failing_starts": 0}) as running:
        start, failures = running.engine.start, iter([OSError("no memory"), None])

        async def sometimes() -> None:
            if error := next(failures):
                raise error
            await start()

        running.engine.start = sometimes  # type: ignore[method-assign]
        running.engine.kill()
        await running.client.until_state("WARMING", 1)
        await running.client.until_state("SERVING")
        assert next(failures, "none left") == "none left"
        assert (await running.client.status()).engine_restart_count == 1


async def test_a_first_start_that_fails_ends_the_process():
    settings = WorkerSettings(
        engine="sim", model_path=MODEL_PATH, drain_notice_s=0, sim_fault={"failing_starts": 1}
    )
    process = Process(WorkerApp(settings), settings)
    with pytest.raises(RuntimeError, match="as planned"):
        await process.start()
    await process.stop()


async def test_a_stop_while_a_crashed_engine_waits_for_its_start_is_quick():
    async with sim_worker(**SLOW_STEP) as running:
        for _ in range(2):
            await crash(running)
        await crash(running, settle=False)  # the third start waits two seconds
        await running.client.until_state("WARMING")
        begin_s = time.monotonic()
        await running.process.stop()
        assert time.monotonic() - begin_s < 1
        assert running.process.state is State.STOPPED


async def test_a_stop_while_the_engine_loads_again_is_quick():
    async with sim_worker(**SLOW_STEP) as running:

        async def never() -> None:
            await asyncio.Event().wait()

        running.engine.start = never  # type: ignore[method-assign]
        await crash(running, settle=False)
        begin_s = time.monotonic()
        await running.process.stop()
        assert time.monotonic() - begin_s < 1


async def test_an_engine_that_dies_while_the_worker_drains_is_not_brought_back():
    async with sim_worker(**SLOW_STEP) as running:
        stream = asyncio.ensure_future(running.client.generate(sampling=LONG))
        await running.client.until_running(1)
        stopping = asyncio.ensure_future(running.process.stop())
        while running.process.state is not State.DRAINING:
            await asyncio.sleep(0)
        running.engine.kill()
        assert (await failure(stream)).reason is Reason.ENGINE_DEAD
        await asyncio.wait_for(stopping, 1)
        assert running.process.state is State.STOPPED


async def test_an_engine_that_hangs_is_ended_and_brought_back(start_worker: StartWorker):
    running = await start_worker(sim_step_ms=5, engine_stall_timeout_s=0.3)
    stream = asyncio.ensure_future(running.client.generate(sampling=LONG))
    await running.client.until_running(1)
    running.engine.stall()
    assert (await asyncio.wait_for(failure(stream), 3)).reason is Reason.ENGINE_DEAD
    await running.client.until_state("SERVING")
    assert (await running.client.generate(sampling={"max_tokens": 2})).ids() == expected("g", 2)


async def test_an_engine_that_is_busy_for_longer_than_the_stall_timeout_is_left_alone(
    start_worker: StartWorker,
):
    running = await start_worker(sim_step_ms=20, engine_stall_timeout_s=0.2)
    answer = await running.client.generate(sampling={"max_tokens": 30, "ignore_eos": True})
    assert answer.ids() == expected("g", 30)
    assert (await running.client.status()).engine_restart_count == 0


async def test_an_idle_engine_is_never_taken_for_a_hung_one(start_worker: StartWorker):
    running = await start_worker(engine_stall_timeout_s=0.1)
    await asyncio.sleep(0.4)
    status = await running.client.status()
    assert (status.state, status.engine_restart_count) == ("SERVING", 0)


async def test_without_a_stall_timeout_a_hung_engine_may_hang(start_worker: StartWorker):
    running = await start_worker(sim_step_ms=5, engine_stall_timeout_s=0)
    call = asyncio.ensure_future(running.client.generate(time_limit_ms=300, sampling=LONG))
    await running.client.until_running(1)
    running.engine.stall()
    assert (await call).reason() == "TIME_LIMIT"
    assert (await running.client.status()).engine_restart_count == 0
