"""Sessions that are cleared or deleted while a turn of theirs runs: the turn ends as it would, and leaves nothing behind."""

import hashlib
import io

import pytest
from grpc import aio
from hotline.v1 import conversation_pb2, inference_pb2, session_pb2, session_pb2_grpc
from PIL import Image
from sim_stack import LIMIT_S, sim_stack, started_tokenizer, started_worker

from services.runtime.status import from_rpc_error


@pytest.fixture(scope="module")
async def stack():
    worker = await started_worker(max_model_len=4096)
    tokenizer = await started_tokenizer(worker.port)
    async with sim_stack(tokenizer, worker) as running:
        yield running
    await tokenizer.stop()
    await worker.stop()


@pytest.fixture
def sessions(stack):
    return session_pb2_grpc.SessionServiceStub(stack.channel)


@pytest.fixture
async def session_id(sessions):
    opened = await sessions.CreateSession(session_pb2.CreateSessionRequest(), timeout=LIMIT_S)
    yield opened.session.session_id
    request = session_pb2.DeleteSessionRequest(session_id=opened.session.session_id)
    await sessions.DeleteSession(request, timeout=LIMIT_S)


def picture() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (56, 56), "red").save(file, "PNG")
    return file.getvalue()


def turn(stack, session_id: str, max_tokens: int, **image):
    parts = [
        conversation_pb2.Part(text="look"),
        conversation_pb2.Part(image=conversation_pb2.ImagePart(**(image or {"data": picture()}))),
    ]
    message = conversation_pb2.Message(
        role=conversation_pb2.ROLE_USER, parts=conversation_pb2.PartList(parts=parts)
    )
    request = inference_pb2.GenerateRequest(session_id=session_id, messages=[message])
    request.sampling.max_tokens = max_tokens
    request.sampling.ignore_eos = True
    return stack.inference.Generate(request, timeout=LIMIT_S)


async def finished_after(call, change):
    """The terminal event of a turn, and the change was made in its midst."""
    event = await call.read()
    while not event.HasField("text"):
        event = await call.read()
    await change()
    while not event.HasField("finished"):
        event = await call.read()
    return event.finished


async def test_a_turn_of_a_session_that_is_deleted_meanwhile_ends_without_a_trace(
    stack, sessions, session_id
):
    async def delete() -> None:
        request = session_pb2.DeleteSessionRequest(session_id=session_id)
        await sessions.DeleteSession(request, timeout=LIMIT_S)

    finished = await finished_after(turn(stack, session_id, 300), delete)
    assert finished.usage.completion_tokens == 300
    assert not finished.turn_committed
    with pytest.raises(aio.AioRpcError) as raised:
        await turn(stack, session_id, 1).read()
    assert from_rpc_error(raised.value, "gateway").reason.value == "SESSION_NOT_FOUND"
    assert stack.app.sessions.store.media.held_bytes == 0


@pytest.mark.parametrize("forget_history", [False, True])
async def test_a_turn_of_a_session_that_is_cleared_meanwhile_is_not_committed(
    stack, sessions, session_id, forget_history
):
    async def clear() -> None:
        request = session_pb2.ClearSessionRequest(
            session_id=session_id, forget_history=forget_history
        )
        await sessions.ClearSession(request, timeout=LIMIT_S)

    finished = await finished_after(turn(stack, session_id, 300), clear)
    assert not finished.turn_committed
    request = session_pb2.GetSessionRequest(session_id=session_id)
    session = (await sessions.GetSession(request, timeout=LIMIT_S)).session
    assert (session.turn_count, session.history_tokens) == (0, 0)
    digest = hashlib.sha256(picture()).digest()
    with pytest.raises(aio.AioRpcError, match="media_digest"):
        await turn(stack, session_id, 1, media_digest=digest).read()
    assert stack.app.sessions.store.media.held_bytes == 0


async def test_images_of_turns_that_are_committed_stay_when_another_turn_is_not(
    stack, sessions, session_id
):
    events = [event async for event in turn(stack, session_id, 2)]
    assert events[-1].finished.turn_committed
    held_bytes = stack.app.sessions.store.media.held_bytes

    async def clear() -> None:
        request = session_pb2.ClearSessionRequest(session_id=session_id)
        await sessions.ClearSession(request, timeout=LIMIT_S)

    assert not (await finished_after(turn(stack, session_id, 300), clear)).turn_committed
    assert stack.app.sessions.store.media.held_bytes == held_bytes > 0
    digest = hashlib.sha256(picture()).digest()
    events = [event async for event in turn(stack, session_id, 2, media_digest=digest)]
    assert events[-1].finished.turn_committed
