"""Streams that are cut wherever it hurts, and resumed: every token exactly once, in order."""

import asyncio
from random import Random

import pytest
from cutting_proxy import CuttingProxy, cutting_proxy
from grpc import aio
from hotline.v1 import generation_pb2, inference_pb2, inference_pb2_grpc
from sim_stack import (
    LIMIT_S,
    expected_text,
    hello,
    sim_stack,
    started_tokenizer,
    started_worker,
    text_of,
)

STREAMS, TOKENS, AT_ONCE = 200, 150, 24
SEED = 5


@pytest.fixture(scope="module")
async def stack():
    worker = await started_worker(sim_step_ms=4, max_num_seqs=32)
    tokenizer = await started_tokenizer(worker.port)
    async with sim_stack(tokenizer, worker) as running:
        yield running
    await tokenizer.stop()
    await worker.stop()


async def read_through(
    proxy: CuttingProxy, name: str
) -> tuple[list[generation_pb2.GenerationEvent], int]:
    """All events, over as many connections as it takes, and how many that were."""
    events: list[generation_pb2.GenerationEvent] = []
    connections = 0
    while not events or events[-1].WhichOneof("event") not in ("finished", "failed"):
        connections += 1
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with aio.insecure_channel(proxy.address, options=options) as channel:
            stub = inference_pb2_grpc.InferenceServiceStub(channel)
            if events:
                after = events[-1].sequence
                request = inference_pb2.ResumeRequest(generation_id=name, after_sequence=after)
                call = stub.Resume(request, timeout=LIMIT_S)
            else:
                call = stub.Generate(hello(TOKENS, generation_id=name), timeout=LIMIT_S)
            try:
                async for event in call:
                    if event.WhichOneof("event") != "heartbeat":
                        events.append(event)
            except aio.AioRpcError:
                continue  # cut
    return events, connections


async def test_two_hundred_streams_cut_at_random_places_lose_nothing_and_repeat_nothing(stack):
    free, connections = asyncio.Semaphore(AT_ONCE), 0
    server = f"127.0.0.1:{stack.gateway.port}"
    async with cutting_proxy(server, Random(SEED), after_bytes=(200, 2500)) as proxy:

        async def one(number: int) -> None:
            nonlocal connections
            async with free:
                name = f"cut-{number}"
                events, count = await read_through(proxy, name)
            connections += count
            assert text_of(events) == expected_text(name, TOKENS)
            sequences = [event.sequence for event in events]
            assert sequences == sorted(set(sequences))
            assert events[-1].finished.usage.completion_tokens == TOKENS

        async with asyncio.timeout(120), asyncio.TaskGroup() as group:
            for number in range(STREAMS):
                group.create_task(one(number))
        assert proxy.cuts > STREAMS
        assert connections > 2 * STREAMS
    assert stack.app.admission.seat_count == 0
