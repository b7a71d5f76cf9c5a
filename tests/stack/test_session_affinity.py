"""A session stays with the worker that has its prefix, and moves when that one is gone."""

import secrets

import pytest
from hotline.v1 import conversation_pb2, inference_pb2, session_pb2, session_pb2_grpc
from several import at, gateway_before
from sim_stack import LIMIT_S, started_tokenizer, started_worker

SESSIONS, TURNS = 6, 5


@pytest.fixture
async def workers():
    made = [await started_worker(name=f"worker-{n}") for n in range(2)]
    yield made
    for worker in made:
        await worker.stop()


async def opened(stack) -> str:
    text = f"{secrets.token_hex(8)} Be short. " * 40  # nobody else's prefix
    message = conversation_pb2.Message(role=conversation_pb2.ROLE_SYSTEM, text=text)
    service = session_pb2_grpc.SessionServiceStub(stack.channel)
    request = session_pb2.CreateSessionRequest(messages=[message])
    return (await service.CreateSession(request, timeout=LIMIT_S)).session.session_id


async def turn(stack, session_id: str) -> tuple[str, int]:
    """The worker, and the tokens that it had."""
    message = conversation_pb2.Message(role=conversation_pb2.ROLE_USER, text="Go on.")
    request = inference_pb2.GenerateRequest(session_id=session_id, messages=[message])
    request.sampling.max_tokens, request.sampling.ignore_eos = 8, True
    worker = ""
    async for event in stack.inference.Generate(request, timeout=LIMIT_S):
        worker = event.started.worker or worker
        if event.HasField("finished"):
            return worker, event.finished.usage.cached_tokens
    raise AssertionError("no terminal event")


async def test_turns_go_where_the_prefix_is_and_elsewhere_when_that_worker_is_gone(workers):
    tokenizer = await started_tokenizer(
        workers[0].port, workers={f"worker-{n}": at(w) for n, w in enumerate(workers)}
    )
    addresses = {f"worker-{n}": at(worker) for n, worker in enumerate(workers)}
    async with gateway_before({"tokenizer-0": at(tokenizer)}, addresses) as stack:
        sessions = [await opened(stack) for _ in range(SESSIONS)]
        homes = {}
        for session_id in sessions:
            homes[session_id], cached = await turn(stack, session_id)
            assert cached == 0
        for _ in range(TURNS):
            for session_id in sessions:
                worker, cached = await turn(stack, session_id)
                assert worker == homes[session_id]
                assert cached > 100
        gone = homes[sessions[0]]
        await workers[int(gone[-1])].stop()
        await stack.until(
            lambda: not all(client.upstream.serving for client in stack.app.pool.workers)
        )
        worker, cached = await turn(stack, sessions[0])
        assert worker != gone
        assert cached == 0  # it pays a prefill, and no more
        assert (await turn(stack, sessions[0]))[1] > 100
    await tokenizer.stop()
