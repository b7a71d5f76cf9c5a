"""Generations over gRPC, on the simulator."""

import asyncio
from typing import Any

import pytest
from grpc import StatusCode, aio
from hotline.v1 import generation_pb2
from worker_calls import MODEL, MODEL_PATH, Answer, Client, connected, failure, image, request
from worker_running import StartWorker
from worker_simulator import sim_config

from services.runtime.error_table import Reason
from services.runtime.lifecycle import Process
from services.worker.app import WorkerApp
from services.worker.settings import WorkerSettings
from services.worker.sim import SimEngine
from services.worker.sim_tokens import trace_token

LONG = {"max_tokens": 8000, "ignore_eos": True}


def expected(key: str, count: int, choice_index: int = 0) -> list[int]:
    return [trace_token(key, choice_index, p, MODEL.ordinary_ids) for p in range(count)]


async def test_a_stream_is_started_then_tokens_then_finished(worker: Client):
    answer = await worker.generate(sampling={"max_tokens": 5})
    assert answer.started[0].prompt_tokens == 3
    assert answer.ids() == expected("g", 5)
    assert answer.finished[0].completion_tokens == 5
    assert not answer.finished[0].HasField("stop_token_id")


async def test_the_models_end_token_ends_a_generation_and_is_reported(start_worker: StartWorker):
    running = await start_worker(sim_output_tokens=4)
    answer = await running.client.generate()
    assert answer.reason() == "STOP"
    assert answer.ids() == [*expected("g", 4), MODEL.end_token_ids[0]]
    assert answer.finished[0].stop_token_id == MODEL.end_token_ids[0]


async def test_a_stop_token_of_the_request_ends_it_as_a_stop_sequence(worker: Client):
    stop = expected("g", 8)[7]
    answer = await worker.generate(sampling={"stop_token_ids": [stop], "min_tokens": 2})
    assert (answer.reason(), answer.finished[0].stop_token_id) == ("STOP_SEQUENCE", stop)
    assert answer.ids()[-1] == stop


async def test_every_choice_has_its_own_tokens_and_its_own_end(worker: Client):
    answer = await worker.generate(sampling={"n": 3, "max_tokens": 4})
    for index in range(3):
        assert answer.ids(index) == expected("g", 4, index)
        assert answer.reason(index) == "LENGTH"


async def test_logprobs_come_one_for_each_id(worker: Client):
    answer = await worker.generate(sampling={"logprobs": 1, "max_tokens": 4})
    entries = [entry for piece in answer.tokens for entry in piece.logprobs]
    assert [entry.sampled.token_id for entry in entries] == answer.ids()
    assert all(len(entry.top) == 1 for entry in entries)


async def test_tokens_follow_from_the_trace_key_whatever_the_generation_id(worker: Client):
    answer = await worker.generate("other", trace_key="k", sampling={"max_tokens": 6})
    assert answer.ids() == expected("k", 6)


async def test_fifty_generations_at_once_are_never_mixed(worker: Client):
    names = [f"g{index}" for index in range(50)]
    answers = await asyncio.gather(
        *(worker.generate(name, sampling={"max_tokens": 20}) for name in names)
    )
    assert [answer.ids() for answer in answers] == [expected(name, 20) for name in names]


async def test_an_image_prompt_is_served_once_its_tensor_is_here(worker: Client):
    picture = image(1)
    await worker.put(picture)
    answer = await worker.generate(
        ids=picture.prompt(), features=[picture.placed(1)], sampling={"max_tokens": 2}
    )
    assert answer.started[0].prompt_tokens == len(picture.prompt())


async def test_cancelling_the_call_frees_its_slot(start_worker: StartWorker):
    running = await start_worker(sim_step_ms=20)
    call = running.client.open(request(sampling=LONG))
    await call.read()
    await running.client.until_running(1)
    call.cancel()
    await running.client.until_running(0, timeout_s=0.5)


async def test_cancelling_a_call_that_waits_frees_its_place(start_worker: StartWorker):
    running = await start_worker(sim_step_ms=20, max_num_seqs=1, max_waiting=1)
    first = running.client.open(request("first", sampling=LONG))
    await first.read()
    second = running.client.open(request("second", sampling=LONG))
    second_read = asyncio.ensure_future(second.read())
    await running.client.until_running(2)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second_read
    await running.client.until_running(1, timeout_s=0.5)
    first.cancel()


async def test_a_client_that_vanishes_frees_its_slot(start_worker: StartWorker):
    running = await start_worker(sim_step_ms=20)
    async with aio.insecure_channel(f"127.0.0.1:{running.process.port}") as channel:
        await Client(channel).open(request(sampling=LONG)).read()
        await running.client.until_running(1)
    await running.client.until_running(0, timeout_s=0.5)


async def test_the_calls_deadline_frees_its_slot(start_worker: StartWorker):
    running = await start_worker(sim_step_ms=20)
    with pytest.raises(aio.AioRpcError) as caught:
        async for _ in running.client.open(request(sampling=LONG), timeout_s=0.1):
            pass
    assert caught.value.code() is StatusCode.DEADLINE_EXCEEDED
    await running.client.until_running(0, timeout_s=0.5)


async def test_the_time_limit_ends_a_generation_with_the_ids_so_far(start_worker: StartWorker):
    running = await start_worker(sim_step_ms=10)
    answer = await running.client.generate(time_limit_ms=150, sampling=LONG)
    assert answer.reason() == "TIME_LIMIT"
    ids = answer.ids()
    assert ids == expected("g", len(ids))
    assert answer.finished[0].completion_tokens == len(ids) > 0


async def test_the_time_limit_holds_for_a_generation_that_never_began(start_worker: StartWorker):
    running = await start_worker(sim_step_ms=20, max_num_seqs=1)
    first = running.client.open(request("first", sampling=LONG))
    await first.read()
    answer = await running.client.generate(time_limit_ms=50, sampling={"n": 2})
    assert [answer.reason(0), answer.reason(1)] == ["TIME_LIMIT", "TIME_LIMIT"]
    assert answer.started[0].prompt_tokens == 3
    first.cancel()


async def test_abort_ends_a_stream_with_reason_cancelled(start_worker: StartWorker):
    running = await start_worker(sim_step_ms=20)
    whole = asyncio.ensure_future(running.client.generate(sampling=LONG))
    await running.client.until_running(1)
    assert await running.client.abort("g")
    answer: Answer = await asyncio.wait_for(whole, 1)
    assert answer.reason() == "CANCELLED"
    assert answer.ids() == expected("g", len(answer.ids()))
    assert (await running.client.status()).running == 0


async def test_abort_of_what_does_not_run_says_so(worker: Client):
    assert not await worker.abort("nobody")


async def test_abort_refuses_what_is_no_generation_id(worker: Client):
    assert (await failure(worker.abort(""))).field == "generation_id"


async def test_a_generation_id_that_runs_is_a_conflict_and_hurts_nobody(start_worker: StartWorker):
    running = await start_worker(sim_step_ms=5)
    first = asyncio.ensure_future(running.client.generate(sampling={"max_tokens": 40}))
    await running.client.until_running(1)
    error = await failure(running.client.generate())
    assert error.reason is Reason.GENERATION_CONFLICT
    assert (await first).ids() == expected("g", 40)


async def test_a_generation_id_may_be_used_again_after_its_end(worker: Client):
    for _ in range(2):
        assert (await worker.generate(sampling={"max_tokens": 2})).reason() == "LENGTH"


async def test_beyond_the_waiting_room_requests_are_refused_with_a_delay(start_worker: StartWorker):
    running = await start_worker(sim_step_ms=20, max_num_seqs=2, max_waiting=1)
    calls = [running.client.open(request(f"g{i}", sampling=LONG)) for i in range(3)]
    await running.client.until_running(3)
    async with asyncio.timeout(5):
        while (status := await running.client.status()).waiting > 1:
            await asyncio.sleep(0.01)  # for the step under way to end
    assert (status.running, status.waiting, status.max_running) == (2, 1, 2)
    error = await failure(running.client.generate("late"))
    assert error.reason is Reason.OVERLOADED
    assert error.retry_delay_s
    for call in calls:
        call.cancel()
    await running.client.until_running(0)
    assert (await running.client.generate("late", sampling={"max_tokens": 1})).ids()


async def test_choices_count_as_generations_in_the_bound(start_worker: StartWorker):
    running = await start_worker(sim_step_ms=20, max_num_seqs=2, max_waiting=2)
    call = running.client.open(request(sampling={**LONG, "n": 3}))
    await call.read()
    assert (await failure(running.client.generate("h", sampling={"n": 2}))).reason is (
        Reason.OVERLOADED
    )
    call.cancel()


async def test_a_fault_in_one_generation_leaves_the_others_alone(
    start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
):
    running = await start_worker(sim_step_ms=5)
    other = asyncio.ensure_future(running.client.generate("other", sampling={"max_tokens": 40}))
    await running.client.until_running(1)
    output = running.engine._output

    def broken(job: Any, index: int) -> Any:
        if job.generation_id == "bad":
            raise ZeroDivisionError("secret")
        return output(job, index)

    monkeypatch.setattr(running.engine, "_output", broken)
    error = await failure(running.client.generate("bad"))
    assert error.reason is Reason.INTERNAL
    assert "secret" not in error.message
    assert (await other).ids() == expected("other", 40)
    await running.client.until_running(0)


async def test_while_it_warms_up_a_worker_refuses_work_and_tells_its_state():
    settings = WorkerSettings(engine="sim", model_path=MODEL_PATH, drain_notice_s=0)
    loading = asyncio.Event()

    class Slow(SimEngine):
        async def start(self) -> None:
            loading.set()
            await asyncio.Event().wait()

    engine = Slow(MODEL, sim_config(), lambda: 0.0)
    process = Process(WorkerApp(settings, engine), settings)
    starting = asyncio.create_task(process.start())
    await loading.wait()
    async with connected(f"127.0.0.1:{process.port}") as client:
        assert (await client.status()).state == "WARMING"
        for call in (client.generate(), client.put(image(1))):
            error = await failure(call)
            assert (error.reason, bool(error.retry_delay_s)) == (Reason.UNAVAILABLE, True)
    starting.cancel()
    await asyncio.wait([starting])
    await process.stop()


async def test_structured_output_is_nothing_a_simulator_can_keep(worker: Client):
    from hotline.v1 import sampling_pb2

    constraint = sampling_pb2.StructuredOutput(json_object=True)
    error = await failure(worker.generate(sampling={"structured_output": constraint}))
    assert error.reason is Reason.UNIMPLEMENTED


async def test_the_status_tells_model_limits_and_load(worker: Client):
    status = await worker.status()
    assert (status.name, status.model) == ("worker", "autoglm-phone-tiny")
    assert (status.engine, status.state) == ("sim", "SERVING")
    assert (status.context_tokens, status.vocabulary_size) == (8192, MODEL.vocabulary_size)
    assert tuple(status.end_token_ids) == MODEL.end_token_ids
    assert MODEL.images is not None
    assert (status.images.max_count, status.images.max_tokens) == (4, MODEL.images.max_tokens)
    assert status.serving_s > 0


def test_every_reason_of_ours_is_one_of_the_contract():
    from services.worker.engine import Reason as FinishReason

    for reason in FinishReason:
        assert generation_pb2.FinishReason.Value(f"FINISH_REASON_{reason.value}") > 0
