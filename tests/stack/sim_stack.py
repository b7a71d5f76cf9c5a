"""The gateway before a real tokenizer and simulated engines, all in this process, over real gRPC on free ports."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from grpc import aio
from hotline.v1 import conversation_pb2, generation_pb2, inference_pb2, inference_pb2_grpc

from services.gateway.app import Gateway
from services.gateway.settings import GatewaySettings
from services.runtime.channel import open_channel
from services.runtime.lifecycle import Process
from services.tokenizer.app import TokenizerApp
from services.tokenizer.settings import TokenizerSettings
from services.worker.app import WorkerApp
from services.worker.model import read_model
from services.worker.settings import WorkerSettings
from services.worker.sim_tokens import trace_token

MODEL = Path(__file__).resolve().parents[2] / "deploy" / "models" / "autoglm-phone-tiny"
LIMIT_S = 30.0
"""Liveness bound of every wait in these tests."""


async def started_worker(address: str = "127.0.0.1:0", **fields: object) -> Process:
    """A worker with a simulated engine."""
    given: dict[str, object] = {
        "name": "worker-0",
        "engine": "sim",
        "sim_profile": "fast",
        "model_path": MODEL,
        "drain_notice_s": 0,
        "drain_grace_s": 0,
    } | fields
    settings = WorkerSettings(address=address, **given)
    process = Process(WorkerApp(settings), settings)
    await process.start()
    return process


async def started_tokenizer(
    worker_port: int, address: str = "127.0.0.1:0", **fields: object
) -> Process:
    """A tokenizer that pushes to that worker."""
    given: dict[str, object] = {
        "name": "tokenizer-0",
        "model_path": MODEL,
        "model_name": "autoglm-phone-tiny",
        "workers": {"worker-0": f"127.0.0.1:{worker_port}"},
        "drain_notice_s": 0,
        "drain_grace_s": 0,
    } | fields
    settings = TokenizerSettings(address=address, **given)
    process = Process(TokenizerApp(settings), settings)
    await process.start()
    return process


@dataclass
class SimStack:
    """The processes, and a channel to the gateway."""

    worker: Process
    tokenizer: Process
    gateway: Process
    app: Gateway
    channel: aio.Channel

    @property
    def inference(self) -> "inference_pb2_grpc.InferenceServiceAsyncStub":
        """A native client."""
        return inference_pb2_grpc.InferenceServiceStub(self.channel)

    @property
    def admin_address(self) -> str:
        """Where the gateway answers operators."""
        return f"127.0.0.1:{self.app.admin.port}"

    async def until(self, condition) -> None:
        """Wait until a condition holds; fails at the liveness bound."""
        async with asyncio.timeout(LIMIT_S):
            while not condition():
                await asyncio.sleep(0.01)

    async def until_ready(self, ready: bool = True) -> None:
        """Wait until the gateway is ready, or is not."""
        await self.until(lambda: self.app.pool.ready is ready)


@asynccontextmanager
async def sim_stack(
    tokenizer: Process, worker: Process, **gateway_fields: object
) -> AsyncGenerator[SimStack, None]:
    """A gateway before those two."""
    settings = GatewaySettings(
        tokenizers={"tokenizer-0": f"127.0.0.1:{tokenizer.port}"},
        workers={"worker-0": f"127.0.0.1:{worker.port}"},
        **{
            "name": "gateway",
            "model_aliases": ["autoglm-phone-9b"],
            "allow_anonymous": True,
            "admin_address": "127.0.0.1:0",
            "drain_notice_s": 0,
            "drain_grace_s": 0,
            **gateway_fields,
        },
    )
    app = Gateway(settings)
    gateway = Process(app, settings)
    await gateway.start()
    address = str(gateway_fields.get("address", f"127.0.0.1:{gateway.port}"))
    async with open_channel(address) as channel:
        stack = SimStack(worker, tokenizer, gateway, app, channel)
        try:
            await stack.until_ready()
            yield stack
        finally:
            await gateway.stop()


def hello(max_tokens: int = 0, **fields: object) -> inference_pb2.GenerateRequest:
    """A text request; the simulator answers with tokens that mean nothing."""
    message = conversation_pb2.Message(role=conversation_pb2.ROLE_USER, text="Hi")
    request = inference_pb2.GenerateRequest(messages=[message], **fields)
    request.sampling.ignore_eos = True
    if max_tokens:
        request.sampling.max_tokens = max_tokens
    return request


def text_of(events: list[generation_pb2.GenerationEvent]) -> str:
    """All text of the first choice."""
    return "".join(event.text.text for event in events if event.choice_index == 0)


def expected_text(generation_id: str, tokens: int) -> str:
    """What the simulator's ids of a generation spell, by transformers itself."""
    from tokenizers import Tokenizer

    ordinary = read_model(MODEL, {}).ordinary_ids
    ids = [trace_token(generation_id, 0, position, ordinary) for position in range(tokens)]
    return Tokenizer.from_file(str(MODEL / "tokenizer.json")).decode(ids, skip_special_tokens=True)
