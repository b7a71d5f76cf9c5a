"""kill -9 of the gateway in the middle of many sessions' turns, with sessions in SQLite and in a real Redis.

What a client was told to be committed is there afterwards, and the next turn finds the prefix in the worker's cache.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from grpc import aio
from hotline.v1 import (
    conversation_pb2,
    inference_pb2,
    inference_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
)
from redis_process import redis_binary, running_redis
from up_process import Up, running_up

from services.cli.configuration import find
from services.runtime.channel import open_channel

pytestmark = pytest.mark.slow

SESSIONS, LIMIT_S = 12, 60.0


@pytest.fixture(scope="module", params=["sqlite", "redis"])
async def up(request, tmp_path_factory) -> AsyncGenerator[Up, None]:
    """A stack with the simulator; two gateways where the store is Redis."""
    file = find("sim")
    document = yaml.safe_load(file.read_text())
    document["model"]["path"] = str((file.parent / document["model"]["path"]).resolve())
    folder = tmp_path_factory.mktemp(request.param)
    async with AsyncExitStack() as stack:
        if request.param == "redis":
            redis_binary()
            url, _ = await stack.enter_async_context(running_redis(folder))
            document["gateway"] |= {"count": 2, "sessions": {"store": "redis", "redis_url": url}}
        written = folder / "stack.yaml"
        written.write_text(yaml.safe_dump(document))
        with running_up("--config", str(written), "--port", "0") as running:
            await asyncio.to_thread(running.until_ready)
            yield running


@dataclass
class Talk:
    """One session and what its client was told."""

    session_id: str
    committed: int = 0
    unknown: int = 0
    """Turns whose end the client never heard."""
    cached: list[int] = field(default_factory=list)


async def opened(channel: aio.Channel) -> Talk:
    system = conversation_pb2.Message(role=conversation_pb2.ROLE_SYSTEM, text="Be short. " * 40)
    request = session_pb2.CreateSessionRequest(messages=[system])
    service = session_pb2_grpc.SessionServiceStub(channel)
    return Talk((await service.CreateSession(request, timeout=LIMIT_S)).session.session_id)


async def turn(channel: aio.Channel, talk: Talk) -> bool:
    """Whether the client heard of the end."""
    said = conversation_pb2.Message(role=conversation_pb2.ROLE_USER, text="Go on.")
    request = inference_pb2.GenerateRequest(session_id=talk.session_id, messages=[said])
    request.session_busy = inference_pb2.SESSION_BUSY_POLICY_WAIT
    request.sampling.max_tokens, request.sampling.ignore_eos = 8, True
    stub = inference_pb2_grpc.InferenceServiceStub(channel)
    try:
        async for event in stub.Generate(request, timeout=LIMIT_S):
            if event.HasField("finished"):
                assert event.finished.turn_committed
                talk.committed += 1
                talk.cached.append(event.finished.usage.cached_tokens)
                return True
    except aio.AioRpcError:
        talk.unknown += 1
        return False
    talk.unknown += 1
    return False


async def test_no_committed_turn_is_lost_and_the_prefix_is_found_again(up, record_property):
    address = up.url.removeprefix("http://")
    async with open_channel(address) as channel:
        talks = [await opened(channel) for _ in range(SESSIONS)]
        stop = asyncio.Event()

        async def talking(talk: Talk) -> None:
            while not stop.is_set() and await turn(channel, talk):
                pass

        running = [asyncio.create_task(talking(talk)) for talk in talks]
        await asyncio.sleep(2.0)
        gateways = [name for name in ("gateway", "gateway-0") if has(up, name)]
        up.service(gateways[0]).kill()
        await asyncio.sleep(1.0)
        stop.set()
        await asyncio.gather(*running)
        assert sum(talk.committed for talk in talks) > SESSIONS
        assert any(talk.unknown for talk in talks)  # the kill hit somebody
    async with open_channel(address) as channel:
        service = session_pb2_grpc.SessionServiceStub(channel)
        lost = 0
        for talk in talks:
            request = session_pb2.GetSessionRequest(session_id=talk.session_id)
            kept = await until_answered(
                lambda request=request: service.GetSession(request, timeout=5)
            )
            lost += max(talk.committed - kept.session.turn_count, 0)
            assert kept.session.turn_count <= talk.committed + talk.unknown
        record_property("committed turns lost", lost)
        assert lost == 0
        for talk in talks:
            async with asyncio.timeout(LIMIT_S):
                while not await turn(channel, talk):
                    await asyncio.sleep(0.1)
            assert talk.cached[-1] > 50  # of the system prompt and the turns before


def has(up: Up, name: str) -> bool:
    return Path(up.folder, f"{name}.log").exists()


async def until_answered(ask):
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                return await ask()
            except aio.AioRpcError:
                await asyncio.sleep(0.1)
