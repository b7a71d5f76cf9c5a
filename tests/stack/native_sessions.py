"""Native calls of sessions, for the tests of this folder."""

import io

import pytest
from grpc import aio
from hotline.v1 import conversation_pb2, inference_pb2, session_pb2, session_pb2_grpc
from PIL import Image
from sim_stack import LIMIT_S

from services.runtime.status import from_rpc_error

SYSTEM = conversation_pb2.Message(role=conversation_pb2.ROLE_SYSTEM, text="Be short. " * 60)


def service(stack) -> "session_pb2_grpc.SessionServiceAsyncStub":
    return session_pb2_grpc.SessionServiceStub(stack.channel)


def picture(colour: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (120, 240), colour).save(file, "PNG")
    return file.getvalue()


def user(text: str, image: bytes = b"", digest: bytes = b"") -> conversation_pb2.Message:
    parts = [conversation_pb2.Part(text=text)]
    if image:
        parts.insert(0, conversation_pb2.Part(image=conversation_pb2.ImagePart(data=image)))
    if digest:
        named = conversation_pb2.ImagePart(media_digest=digest)
        parts.insert(0, conversation_pb2.Part(image=named))
    return conversation_pb2.Message(
        role=conversation_pb2.ROLE_USER, parts=conversation_pb2.PartList(parts=parts)
    )


async def opened(stack, **fields) -> session_pb2.Session:
    request = session_pb2.CreateSessionRequest(**fields)
    return (await service(stack).CreateSession(request, timeout=LIMIT_S)).session


async def turn(stack, session_id, *messages, max_tokens=8, **fields):
    """The terminal event's `finished`, with the accepted and started ones."""
    request = inference_pb2.GenerateRequest(session_id=session_id, messages=messages, **fields)
    request.sampling.max_tokens = max_tokens
    request.sampling.ignore_eos = True
    events = [event async for event in stack.inference.Generate(request, timeout=LIMIT_S)]
    assert events[-1].HasField("finished"), events[-1]
    assert events[0].accepted.session_id == session_id
    return events[-1].finished


async def reason_of(call) -> tuple[str, str]:
    with pytest.raises(aio.AioRpcError) as raised:
        await call
    error = from_rpc_error(raised.value, "the gateway")
    return error.reason.value, error.message
