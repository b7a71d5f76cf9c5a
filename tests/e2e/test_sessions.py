"""Sessions on the real engine: a turn's prompt is that of the whole conversation, and finds it in the prefix cache."""

import httpx
import openai
import pytest
from hotline.v1 import (
    conversation_pb2,
    inference_pb2,
    inference_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
)

from services.runtime.channel import open_channel

from .screens import png, screen

SYSTEM = conversation_pb2.Message(
    role=conversation_pb2.ROLE_SYSTEM, text="You operate a phone, one action at a time. " * 20
)
TURNS, LIMIT_S = 10, 60.0


@pytest.fixture
async def channel(stack):
    async with open_channel(stack.address) as channel:
        yield channel


def user(text: str, image: bytes | None) -> conversation_pb2.Message:
    parts = [conversation_pb2.Part(text=text)]
    if image is not None:
        parts.insert(0, conversation_pb2.Part(image=conversation_pb2.ImagePart(data=image)))
    return conversation_pb2.Message(
        role=conversation_pb2.ROLE_USER, parts=conversation_pb2.PartList(parts=parts)
    )


def screens(count: int) -> list[bytes]:
    return [png(screen(centre=(0.3 + 0.04 * n, 0.2 + 0.05 * n))) for n in range(count)]


async def answered(channel, request) -> tuple[str, "inference_pb2.Usage", int]:
    """Text, usage, and bytes sent."""
    request.sampling.temperature, request.sampling.max_tokens = 0, 60
    stub, text = inference_pb2_grpc.InferenceServiceStub(channel), ""
    async for event in stub.Generate(request, timeout=LIMIT_S):
        text += event.text.text
        if event.HasField("finished"):
            return text, event.finished.usage, request.ByteSize()
        assert not event.HasField("failed"), event.failed
    raise AssertionError("no terminal event")


async def opened(channel, kept: int, **fields) -> str:
    history = session_pb2.HistoryPolicy(images=session_pb2.IMAGE_RETENTION_LAST, image_count=kept)
    request = session_pb2.CreateSessionRequest(history=history, messages=[SYSTEM], **fields)
    service = session_pb2_grpc.SessionServiceStub(channel)
    return (await service.CreateSession(request, timeout=LIMIT_S)).session.session_id


@pytest.mark.parametrize("kept", [1, 4], ids=["the last image", "four images"])
async def test_ten_turns_are_answered_as_if_everything_had_been_sent_again(channel, kept):
    session_id, shots = await opened(channel, kept), screens(TURNS)
    past, in_session, resent = [], [], []
    for number, shot in enumerate(shots):
        said = f"点击红色按钮 {number}"
        request = inference_pb2.GenerateRequest(session_id=session_id, messages=[user(said, shot)])
        in_session.append(await answered(channel, request))
        messages = [SYSTEM]
        for place, (text, answer) in enumerate(past):
            messages.append(user(text, shots[place] if place > number - kept else None))
            # The end tag stays in the history, as a phone agent's client puts it back.
            content = f"{answer}</answer>" if "<answer>" in answer else answer
            messages.append(
                conversation_pb2.Message(role=conversation_pb2.ROLE_ASSISTANT, text=content)
            )
        messages.append(user(said, shot))
        resent.append(await answered(channel, inference_pb2.GenerateRequest(messages=messages)))
        past.append((said, in_session[-1][0]))
    assert [text for text, _, _ in in_session] == [text for text, _, _ in resent]
    assert [usage.prompt_tokens for _, usage, _ in in_session] == [
        usage.prompt_tokens for _, usage, _ in resent
    ]
    _, usage, sent = in_session[-1]
    assert usage.cached_tokens > usage.prompt_tokens / 2
    if kept > 1:
        assert sent < resent[-1][2] / 3


async def test_after_clear_the_next_turn_finds_nothing_and_is_answered_as_it_would_have_been(
    channel,
):
    service = session_pb2_grpc.SessionServiceStub(channel)

    async def talk(cleared: bool):
        session_id = await opened(channel, 1)
        for number, text in enumerate(("My name is Anna.", "What is my name?", "And again?")):
            if cleared and number == 2:
                clear = session_pb2.ClearSessionRequest(session_id=session_id)
                await service.ClearSession(clear, timeout=LIMIT_S)
            request = inference_pb2.GenerateRequest(
                session_id=session_id, messages=[user(text, None)]
            )
            answer, usage, _ = await answered(channel, request)
        return answer, usage

    text, usage = await talk(False)
    assert usage.cached_tokens > usage.prompt_tokens / 2
    text_after, usage_after = await talk(True)
    assert usage_after.cached_tokens == 0
    assert (text_after, usage_after.prompt_tokens) == (text, usage.prompt_tokens)


async def test_openai_python_has_a_conversation_in_a_session(stack):
    async with (
        httpx.AsyncClient(base_url=stack.base_url, timeout=LIMIT_S, trust_env=False) as rest,
        openai.AsyncOpenAI(base_url=stack.base_url, api_key="EMPTY", max_retries=0) as client,
    ):
        system = {"role": "system", "content": "You operate a phone. " * 20}
        made = await rest.post("/sessions", json={"ttl_seconds": 60, "messages": [system]})
        session = made.json()
        assert session["object"] == "session"

        async def said(text: str, **extra):
            answer = await client.chat.completions.create(
                model="autoglm-phone-tiny",
                messages=[{"role": "user", "content": text}],
                temperature=0,
                max_tokens=60,
                **extra,
            )
            return answer.choices[0].message.content, answer.usage

        await said("My name is Anna.", extra_body={"session_id": session["id"]})
        _, usage = await said("What is my name?", extra_headers={"X-Session-Id": session["id"]})
        assert usage.prompt_tokens_details.cached_tokens > 0
        assert (await rest.get(f"/sessions/{session['id']}")).json()["turn_count"] == 2
        assert (await rest.delete(f"/sessions/{session['id']}")).json()["deleted"] is True
        with pytest.raises(openai.NotFoundError) as raised:
            await said("Still there?", extra_body={"session_id": session["id"]})
        assert raised.value.code == "session_not_found"
