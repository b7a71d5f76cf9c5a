"""The gateway's client of one tokenizer: what it learns of it, and how it leaves one that is frozen."""

import asyncio

import pytest
from hotline.v1 import conversation_pb2, tokenizer_pb2, tokenizer_pb2_grpc

from services.gateway.caller import Caller
from services.gateway.interfaces import GenerationRequest
from services.gateway.tokenizer_client import TokenizerClient
from services.gateway.upstream import Upstream
from services.runtime.errors import DeadlineExceededError, UnavailableError
from services.runtime.lifecycle import Process, Service
from services.runtime.settings import ServiceSettings

LIMIT_S = 10.0
RENDER, DETOKENISE = 1, 2
REQUEST = GenerationRequest(
    generation_id="g",
    caller=Caller("o"),
    model="m",
    messages=[conversation_pb2.Message(role=conversation_pb2.ROLE_USER, text="Hi")],
    render_options=None,
    sampling=None,
    choice_count=1,
    stop=(),
    split_reasoning=False,
    ignore_eos=False,
    max_tokens=None,
    priority=0,
    deadline_s=60.0,
)


class Silent(Service, tokenizer_pb2_grpc.TokenizerServiceServicer):
    """Says who it is, and never answers a Render."""

    def __init__(self, *roles: int) -> None:
        super().__init__()
        self.roles, self.rendering, self.cancelled = roles, asyncio.Event(), asyncio.Event()

    def register(self, server):
        tokenizer_pb2_grpc.add_TokenizerServiceServicer_to_server(self, server)
        return ["hotline.v1.TokenizerService"]

    async def warm(self) -> None:
        return

    async def close(self) -> None:
        return

    async def Render(self, request, context):
        self.rendering.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()

    async def GetTokenizerStatus(self, request, context):
        return tokenizer_pb2.GetTokenizerStatusResponse(model="m", roles=self.roles)

    async def Detokenise(self, requests, context): ...
    async def PushFeatures(self, request, context): ...
    async def Tokenize(self, request, context): ...
    async def DecodeTokens(self, request, context): ...


@pytest.fixture
async def connected():
    async def connect(*roles: int) -> tuple[Silent, TokenizerClient]:
        service = Silent(*roles)
        settings = ServiceSettings(address="127.0.0.1:0", drain_notice_s=0, drain_grace_s=0)
        process = Process(service, settings)
        await process.start()
        client = TokenizerClient(Upstream("tokenizer-0", f"127.0.0.1:{process.port}"))
        opened.append((process, client))
        return service, client

    opened: list[tuple[Process, TokenizerClient]] = []
    yield connect
    for process, client in opened:
        await client.link.close()
        await client.upstream.close()
        await process.stop()


def rendering(client: TokenizerClient, timeout_s: float = LIMIT_S):
    return asyncio.create_task(client.render(REQUEST, timeout_s))


@pytest.mark.parametrize(
    "roles",
    [
        pytest.param((RENDER,), id="render"),
        pytest.param((DETOKENISE,), id="detokenise"),
        pytest.param((RENDER, DETOKENISE), id="both"),
    ],
)
async def test_roles_and_model_are_learnt_and_count_only_while_it_serves(connected, roles):
    _, client = await connected(*roles)
    client.upstream.serving = True
    assert not client.renders("m")
    await client.refresh()
    assert client.renders("m") is (RENDER in roles)
    assert client.detokenises("m") is (DETOKENISE in roles)
    assert not client.renders("another")
    client.upstream.serving = False
    assert not client.renders("m")
    assert not client.detokenises("m")


async def test_a_render_in_a_frozen_process_is_given_up_at_once_and_can_go_elsewhere(connected):
    service, client = await connected(RENDER)
    task = rendering(client)
    await asyncio.wait_for(service.rendering.wait(), LIMIT_S)
    assert client.rendering_count == 1
    for tell in client.upstream.frozen_listeners:
        tell()
    with pytest.raises(UnavailableError, match="tokenizer-0 does not answer"):
        await asyncio.wait_for(task, LIMIT_S)
    assert client.rendering_count == 0
    await asyncio.wait_for(service.cancelled.wait(), LIMIT_S)


async def test_a_render_that_takes_too_long_is_a_timeout(connected):
    _, client = await connected(RENDER)
    with pytest.raises(DeadlineExceededError):
        await rendering(client, timeout_s=0.1)
    assert client.rendering_count == 0


async def test_a_cancelled_render_is_cancelled_there_too(connected):
    service, client = await connected(RENDER)
    task = rendering(client)
    await asyncio.wait_for(service.rendering.wait(), LIMIT_S)
    task.cancel()
    await asyncio.wait((task,), timeout=LIMIT_S)
    assert task.cancelled()
    assert client.rendering_count == 0
    await asyncio.wait_for(service.cancelled.wait(), LIMIT_S)
