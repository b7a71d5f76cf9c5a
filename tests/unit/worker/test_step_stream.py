"""GenerateMany over gRPC, on the simulator: many generations on one stream, each by itself."""

import asyncio

import pytest
from grpc import StatusCode, aio
from hotline.v1 import worker_pb2
from step_calls import LIMIT_S, Peer, begin, stream
from test_worker_generate import LONG, expected
from worker_calls import Client, image
from worker_running import StartWorker

from services.runtime.errors import InvalidArgumentError
from services.runtime.status import from_rpc_error


async def refusal(peer: Peer) -> InvalidArgumentError:
    """The error that ends the stream."""
    async with asyncio.timeout(LIMIT_S):
        try:
            while await peer.call.read() is not aio.EOF:
                pass
        except aio.AioRpcError as caught:
            error = from_rpc_error(caught, "worker")
            assert isinstance(error, InvalidArgumentError)
            return error
    raise AssertionError("the stream has ended well")


async def test_sixty_four_generations_on_one_stream_each_get_their_own_ids(worker: Client):
    async with stream(worker) as peer:
        handles = range(1, 65)
        await peer.begin(*handles, sampling={"max_tokens": 30})
        for handle in handles:
            answer = await peer.whole(handle)
            assert answer.ids() == expected(f"g{handle}", 30)
            assert answer.reason() == "LENGTH"
            assert answer.finished[0].completion_tokens == 30


async def test_what_becomes_ready_together_travels_together(start_worker: StartWorker):
    running = await start_worker(sim_step_ms=20, max_num_seqs=32)
    async with stream(running.client) as peer:
        handles = range(1, 33)
        await peer.begin(*handles, sampling={"max_tokens": 10})
        for handle in handles:
            await peer.whole(handle)
        pieces = sum(len(message.handles) for message in peer.messages)
        assert pieces >= 4 * sum(bool(message.handles) for message in peer.messages)


async def test_every_choice_has_its_own_runs_and_its_own_end(worker: Client):
    async with stream(worker) as peer:
        await peer.begin(1, sampling={"n": 3, "max_tokens": 4})
        answer = await peer.whole(1, choice_count=3)
        for index in range(3):
            assert answer.ids(index) == expected("g1", 4, index)


async def test_logprobs_come_only_for_who_asked(worker: Client):
    async with stream(worker) as peer:
        await peer.say(
            begin(1, sampling={"logprobs": 1, "max_tokens": 6}),
            begin(2, sampling={"max_tokens": 6}),
        )
        asked, plain = await peer.whole(1), await peer.whole(2)
        entries = [entry for piece in asked.tokens for entry in piece.logprobs]
        assert [entry.sampled.token_id for entry in entries] == asked.ids()
        assert not any(piece.logprobs for piece in plain.tokens)


async def test_an_aborted_generation_says_nothing_more_and_leaves_the_others(
    start_worker: StartWorker,
):
    running = await start_worker(sim_step_ms=10)
    async with stream(running.client) as peer:
        await peer.begin(1, sampling=LONG)
        await peer.begin(2, sampling={"max_tokens": 30})
        await peer.until(lambda: 1 in peer.answers and peer.answers[1].tokens)
        await peer.abort(1)
        await running.client.until_running(1, timeout_s=0.6)  # a step + 50 ms, with tenfold slack
        await peer.begin(1, generation_id="g1-again", sampling={"max_tokens": 3})
        peer.answers.pop(1)
        # What was on its way when the abort was said is still of the first one.
        await peer.until(lambda: 2 in peer.answers and peer.answers[2].finished)
        assert peer.answers[2].ids() == expected("g2", 30)
        assert peer.answers[1].ids() == expected("g1-again", 3)
        assert not peer.failed


async def test_an_abort_of_what_is_unknown_is_nothing(worker: Client):
    async with stream(worker) as peer:
        await peer.abort(77)
        await peer.begin(1, sampling={"max_tokens": 2})
        assert (await peer.whole(1)).ids() == expected("g1", 2)


@pytest.mark.parametrize("end", ["cancel", "connection"])
async def test_the_end_of_a_stream_aborts_all_its_generations(start_worker: StartWorker, end: str):
    running = await start_worker(sim_step_ms=20, max_num_seqs=64)
    channel = aio.insecure_channel(f"127.0.0.1:{running.process.port}")
    async with channel, stream(Client(channel)) as peer:
        await peer.begin(*range(1, 65), sampling=LONG)
        await running.client.until_running(64)
        if end == "connection":
            await channel.close()
        else:
            peer.call.cancel()
        await running.client.until_running(0, timeout_s=0.7)


async def test_the_end_of_the_inputs_lets_what_runs_run_on(worker: Client):
    async with stream(worker) as peer:
        await peer.begin(1, sampling={"max_tokens": 20})
        await peer.call.done_writing()
        assert (await peer.whole(1)).ids() == expected("g1", 20)
        assert await asyncio.wait_for(peer.call.read(), LIMIT_S) is aio.EOF
        assert await peer.call.code() is StatusCode.OK


async def test_a_refusal_is_told_to_its_handle_with_all_that_a_status_would_say(worker: Client):
    async with stream(worker) as peer:
        await peer.say(
            begin(1, sampling={"temperature": -1.0}), begin(2, sampling={"max_tokens": 3})
        )
        reason, end = await peer.failure(1)
        assert reason == "INVALID_ARGUMENT"
        assert end.metadata["field"] == "sampling.temperature"
        assert "-1.0" in end.message
        assert not end.HasField("finished")
        assert (await peer.whole(2)).ids() == expected("g2", 3)


async def test_missing_features_are_named_and_the_next_try_may_use_the_handle(worker: Client):
    picture = image(91)
    wanted = {"ids": picture.prompt(), "features": [picture.placed(1)]}
    async with stream(worker) as peer:
        await peer.begin(1, **wanted, sampling={"max_tokens": 2})
        reason, end = await peer.failure(1)
        assert reason == "FEATURES_MISSING"
        assert end.metadata["digests"] == picture.header.feature_digest.hex()
        await worker.put(picture)
        await peer.begin(1, **wanted, sampling={"max_tokens": 2})
        assert (await peer.whole(1)).ids() == expected("g1", 2)


async def test_beyond_the_capacity_a_handle_is_refused_with_a_delay(start_worker: StartWorker):
    running = await start_worker(sim_step_ms=20, max_num_seqs=2, max_waiting=1)
    async with stream(running.client) as peer:
        await peer.begin(1, 2, 3, 4, sampling=LONG)
        reason, end = await peer.failure(4)
        assert reason == "OVERLOADED"
        assert end.retry_delay_ms > 0
        assert set(peer.failed) == {4}


async def test_an_id_that_runs_is_a_conflict_and_hurts_nobody(start_worker: StartWorker):
    running = await start_worker(sim_step_ms=5)
    async with stream(running.client) as peer:
        await peer.say(
            begin(1, "same", sampling={"max_tokens": 40}), begin(2, "same", sampling=LONG)
        )
        assert (await peer.failure(2))[0] == "GENERATION_CONFLICT"
        assert (await peer.whole(1)).ids() == expected("same", 40)


async def test_an_id_may_be_used_again_as_soon_as_its_end_is_told(worker: Client):
    async with stream(worker) as peer:
        for handle in range(1, 30):
            await peer.begin(handle, generation_id="again", sampling={"max_tokens": 1})
            assert (await peer.whole(handle)).reason() == "LENGTH"


async def test_a_fault_of_ours_is_told_to_its_handle_alone_and_without_its_text(
    start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
):
    running = await start_worker(sim_step_ms=5)
    generate = running.engine.generate

    def broken(job):
        if job.generation_id == "g1":
            raise ZeroDivisionError("secret")
        return generate(job)

    monkeypatch.setattr(running.engine, "generate", broken)
    async with stream(running.client) as peer:
        await peer.begin(1, 2, sampling={"max_tokens": 20})
        reason, end = await peer.failure(1)
        assert reason == "INTERNAL"
        assert "secret" not in end.message
        assert (await peer.whole(2)).ids() == expected("g2", 20)


async def test_when_the_engine_dies_every_handle_hears_it(start_worker: StartWorker):
    running = await start_worker(sim_step_ms=5)
    async with stream(running.client) as peer:
        await peer.begin(1, 2, sampling=LONG)
        await peer.until(lambda: len(peer.answers) == 2)
        running.engine.kill()
        for handle in (1, 2):
            assert (await peer.failure(handle))[0] == "ENGINE_DEAD"


async def test_the_time_limit_and_abort_by_name_end_a_generation_in_good_order(
    start_worker: StartWorker,
):
    running = await start_worker(sim_step_ms=10)
    async with stream(running.client) as peer:
        await peer.say(begin(1, time_limit_ms=100, sampling=LONG), begin(2, sampling=LONG))
        answer = await peer.whole(1)
        assert answer.reason() == "TIME_LIMIT"
        assert answer.ids() == expected("g1", answer.finished[0].completion_tokens)
        assert await running.client.abort("g2")
        assert (await peer.whole(2)).reason() == "CANCELLED"


GENERATE = begin(5, sampling=LONG)


@pytest.mark.parametrize(
    ("inputs", "field"),
    [
        pytest.param([worker_pb2.GenerateManyInput(handle=1)], "inputs[0].act", id="no act"),
        pytest.param(
            [worker_pb2.GenerateManyInput(handle=1, abort=False)], "inputs[0].act", id="no abort"
        ),
        pytest.param([begin(0)], "handle", id="handle 0"),
        pytest.param([GENERATE, GENERATE], "handle", id="a handle that is open"),
        pytest.param(
            [worker_pb2.GenerateManyInput(handle=1, abort=True)] * 4097, "inputs", id="too many"
        ),
    ],
)
async def test_a_message_against_the_rules_ends_the_stream_and_frees_its_slots(
    start_worker: StartWorker, inputs: list[worker_pb2.GenerateManyInput], field: str
):
    running = await start_worker(sim_step_ms=20)
    async with stream(running.client) as peer:
        await peer.begin(9, sampling=LONG)
        await peer.say(*inputs)
        assert (await refusal(peer)).field == field
        await running.client.until_running(0, timeout_s=0.7)


async def test_the_load_is_told_first_and_then_when_it_has_changed(start_worker: StartWorker):
    running = await start_worker(sim_step_ms=5, max_num_seqs=2)
    async with stream(running.client) as idle, stream(running.client) as busy:
        assert (idle.loads[0].running, idle.loads[0].waiting) == (0, 0)
        await busy.begin(1, 2, 3, sampling=LONG)
        await idle.until(lambda: (idle.loads[-1].running, idle.loads[-1].waiting) == (2, 1))
        assert idle.loads[-1].kv_usage_ratio > 0
        busy.call.cancel()
        await idle.until(lambda: idle.loads[-1].running == 0)
        assert len(idle.messages) == len(idle.loads), "nothing but loads"


async def test_the_load_is_told_at_most_ten_times_a_second(start_worker: StartWorker):
    running = await start_worker(sim_step_ms=1, max_num_seqs=64)
    begin_s = asyncio.get_running_loop().time()
    async with stream(running.client) as peer:
        for handle in range(1, 101):
            await peer.begin(handle, sampling={"max_tokens": 3})
            await peer.whole(handle)
        elapsed_s = asyncio.get_running_loop().time() - begin_s
        assert len(peer.loads) <= 2 + 10 * elapsed_s


async def test_a_peer_that_does_not_read_gets_the_rest_merged(start_worker: StartWorker):
    running = await start_worker(sim_step_ms=0)
    narrow = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 4096)]
    channel = aio.insecure_channel(f"127.0.0.1:{running.process.port}", options=narrow)
    async with channel, stream(Client(channel)) as peer:
        await peer.begin(1, sampling={"max_tokens": 8000, "ignore_eos": True})
        await running.client.until_running(1)
        await running.client.until_running(0, timeout_s=LIMIT_S)
        answer = await peer.whole(1)
    assert answer.ids() == expected("g1", 8000)
    assert len(answer.tokens) < 4000


async def test_an_idle_stream_does_not_hold_the_stop(start_worker: StartWorker):
    running = await start_worker(drain_grace_s=20)
    async with stream(running.client) as peer:
        await asyncio.wait_for(running.process.stop(), 5)
        assert await peer.call.code() is StatusCode.OK


async def test_a_busy_stream_ends_with_its_last_generation_and_takes_no_new_one(
    start_worker: StartWorker,
):
    running = await start_worker(sim_step_ms=10, drain_grace_s=20)
    async with stream(running.client) as peer:
        await peer.begin(1, sampling={"max_tokens": 60})
        await peer.until(lambda: 1 in peer.answers)
        stopping = asyncio.ensure_future(running.process.stop())
        await asyncio.sleep(0.05)
        await peer.begin(2, sampling={"max_tokens": 60})
        assert (await peer.failure(2))[0] == "UNAVAILABLE"
        assert (await peer.whole(1)).ids() == expected("g1", 60)
        await asyncio.wait_for(stopping, 5)


async def test_a_worker_that_does_not_serve_refuses_the_stream(start_worker: StartWorker):
    running = await start_worker()
    await running.process.stop()
    call = running.client.stub.GenerateMany()
    with pytest.raises(aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is StatusCode.UNAVAILABLE
