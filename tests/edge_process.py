"""A real Envoy on a free port before a small stand-in of the gateway; fixtures of tests/stack/test_edge_*.py."""

import asyncio
import hashlib
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from google.api.httpbody_pb2 import HttpBody
from grpc import aio
from hotline.v1 import (
    generation_pb2,
    inference_pb2,
    inference_pb2_grpc,
    openai_pb2,
    openai_pb2_grpc,
    tokenizer_pb2_grpc,
)

from services.cli.edge import EdgeSettings, command, write
from services.runtime.error_table import Reason
from services.runtime.errors import ServiceError, error_class
from services.runtime.lifecycle import Process, Service
from services.runtime.settings import ServiceSettings
from services.runtime.status import grpc_code

START_LIMIT_S = 20.0

EVENTS = [f'data: {{"n":{n}}}\n\n'.encode() for n in range(5)] + [b"data: [DONE]\n\n"]
"""What the stand-in streams."""


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The error object of an answer that has exactly OpenAI's shape."""
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert list(body) == ["error"]
    error: dict[str, Any] = body["error"]
    assert sorted(error) == ["code", "message", "param", "type"]
    assert isinstance(error["message"], str)
    assert "envoy" not in response.text.lower()
    return error


def json_body(value: object) -> HttpBody:
    """One JSON answer."""
    return HttpBody(content_type="application/json", data=json.dumps(value).encode())


class StandInGateway(
    Service, openai_pb2_grpc.OpenAIServiceServicer, inference_pb2_grpc.InferenceServiceServicer
):
    """Does what a request's `do` says, by the protocol between gateway and edge."""

    def __init__(self) -> None:
        super().__init__()
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.step = asyncio.Event()

    def register(self, server: aio.Server) -> Sequence[str]:
        """Public services, and an internal one that the edge must hide."""
        openai_pb2_grpc.add_OpenAIServiceServicer_to_server(self, server)
        inference_pb2_grpc.add_InferenceServiceServicer_to_server(self, server)
        tokenizer_pb2_grpc.add_TokenizerServiceServicer_to_server(
            tokenizer_pb2_grpc.TokenizerServiceServicer(),  # type: ignore[abstract]
            server,
        )
        return (
            "hotline.v1.OpenAIService",
            "hotline.v1.InferenceService",
            "hotline.v1.TokenizerService",
        )

    async def warm(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to free."""

    async def CreateChatCompletion(
        self, request: HttpBody, context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[HttpBody]:
        """`do`: echo (default), stream, step, hang, fail, bare."""
        body = request.data
        order = json.loads(body) if len(body) < 10_000 else {}
        match order.get("do", "echo"):
            case "echo":
                yield json_body(
                    {
                        "bytes": len(body),
                        "sha256": hashlib.sha256(body).hexdigest(),
                        "content_type": request.content_type,
                        "metadata": [
                            [key, value]
                            for key, value in context.invocation_metadata() or ()
                            if isinstance(value, str)
                        ],
                    }
                )
            case "stream":
                await context.send_initial_metadata(
                    (("cache-control", "no-cache, no-transform"), ("x-accel-buffering", "no"))
                )
                for event in EVENTS:
                    yield HttpBody(content_type="text/event-stream", data=event)
            case "step":
                for event in EVENTS:
                    yield HttpBody(content_type="text/event-stream", data=event)
                    await self.step.wait()
                    self.step.clear()
            case "hang":
                yield HttpBody(content_type="text/event-stream", data=EVENTS[0])
                await self._hang()
            case "hang_silently":
                await self._hang()
                yield HttpBody()
            case "fail":
                async for part in self._fail(order, context):
                    yield part
            case "bare":
                raise make_error(order["reason"], order.get("message", "the message"))
            case "crash":
                raise RuntimeError("internals of the stand-in")

    async def _fail(
        self, order: dict[str, Any], context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[HttpBody]:
        row = make_error(order["reason"], "").row
        await context.send_initial_metadata(
            (("x-http-status", str(row.http_status)), ("retry-after", "7"))
        )
        yield json_body(
            {
                "error": {
                    "message": "the message",
                    "type": row.openai_type,
                    "param": order.get("param"),
                    "code": row.openai_code,
                }
            }
        )
        await context.abort(grpc_code(make_error(order["reason"], "")), "the message")

    async def _hang(self) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()

    async def ListOpenAIModels(
        self, request: openai_pb2.ListOpenAIModelsRequest, context: object
    ) -> AsyncIterator[HttpBody]:
        """No models."""
        yield json_body({"object": "list", "data": []})

    async def GetOpenAIModel(
        self, request: openai_pb2.GetOpenAIModelRequest, context: object
    ) -> AsyncIterator[HttpBody]:
        """The name that arrived."""
        yield json_body({"id": request.model, "object": "model"})

    async def GetHealth(
        self, request: openai_pb2.GetHealthRequest, context: object
    ) -> AsyncIterator[HttpBody]:
        """The probe that arrived."""
        yield json_body({"probe": request.probe})

    async def CountTokens(
        self, request: inference_pb2.CountTokensRequest, context: object
    ) -> inference_pb2.CountTokensResponse:
        """The letters of the model's name."""
        return inference_pb2.CountTokensResponse(prompt_tokens=len(request.model))

    async def Generate(
        self,
        request: inference_pb2.GenerateRequest,
        context: aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[generation_pb2.GenerationEvent]:
        """The time limit and the metadata that arrived, as text; `session_id` names an error to end with.

        `generation_id`: hang; three (events); step (one, then wait for `step`, then another); fail late.
        """
        if request.session_id:
            raise make_error(request.session_id, "the message")
        if request.generation_id in ("three", "step", "fail late"):
            for number in range(
                1, {"three": 3, "step": 2, "fail late": 1}[request.generation_id] + 1
            ):
                yield generation_pb2.GenerationEvent(sequence=number)
                if request.generation_id == "step" and number == 1:
                    await self.step.wait()
            if request.generation_id == "fail late":
                raise make_error("UNAVAILABLE", "the message")
            return
        if request.generation_id == "hang":
            await self._hang()
        metadata = dict(context.invocation_metadata() or ())
        limit_s = context.time_remaining()
        text = json.dumps(
            {"limit_s": limit_s, "request_id": metadata.get("x-request-id"), "keys": [*metadata]}
        )
        yield generation_pb2.GenerationEvent(sequence=1, text=generation_pb2.TextEvent(text=text))


def stand_in_gateway() -> StandInGateway:
    """A stand-in whose other methods answer as gRPC's own stubs do."""
    return StandInGateway()  # type: ignore[abstract]


def make_error(reason: str, message: str) -> ServiceError:
    """An error of a reason, without the words that its own constructor makes."""
    error = error_class(Reason[reason]).__new__(error_class(Reason[reason]))
    ServiceError.__init__(error, message)
    return error


@dataclass
class Edge:
    """A running edge and what stands behind it."""

    port: int
    gateway: StandInGateway
    log: Path
    settings: EdgeSettings
    process: asyncio.subprocess.Process = field(repr=False)

    @property
    def address(self) -> str:
        """For gRPC."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """For REST."""
        return f"http://{self.address}"


@asynccontextmanager
async def running_envoy(settings: EdgeSettings) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    """Envoy on rendered settings, until the block ends."""
    arguments = command(settings, write(settings))
    with (settings.runtime_folder / "envoy.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*arguments, stdout=log, stderr=log)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await asyncio.wait_for(process.wait(), 10)


async def until_serving(address: str) -> None:
    """Wait until the gateway says SERVING through the edge."""
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    async with asyncio.timeout(START_LIMIT_S), aio.insecure_channel(address) as channel:
        while True:
            call = health_pb2_grpc.HealthStub(channel).Watch(
                health_pb2.HealthCheckRequest(), wait_for_ready=True
            )
            with suppress(aio.AioRpcError):  # no healthy gateway yet: ask again
                async for answer in call:
                    if answer.status == health_pb2.HealthCheckResponse.SERVING:
                        return
            await asyncio.sleep(0.1)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def rest(edge: Edge) -> AsyncGenerator[httpx.AsyncClient, None]:
    """A REST client of the edge."""
    async with httpx.AsyncClient(base_url=edge.url, timeout=30) as client:
        yield client


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def edge(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Edge, None]:
    """One Envoy for all edge tests, with a stand-in on a unix socket behind it."""
    folder = tmp_path_factory.mktemp("edge")
    gateway = stand_in_gateway()
    address = f"unix:{folder}/gateway.sock"
    process = Process(gateway, ServiceSettings(address=address, drain_notice_s=0, drain_grace_s=0))
    await process.start()
    settings = EdgeSettings(
        address=f"127.0.0.1:{free_port()}", gateways=(address,), runtime_folder=folder
    )
    try:
        async with running_envoy(settings) as envoy:
            port = int(settings.address.rpartition(":")[2])
            await until_serving(settings.address)
            yield Edge(port, gateway, folder / "envoy.log", settings, envoy)
    finally:
        await process.stop()
