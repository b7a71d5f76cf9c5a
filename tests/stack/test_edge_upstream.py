"""An edge whose gateway is missing, comes, drains and goes."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import grpc
import httpx
import pytest
import pytest_asyncio
from edge_process import (
    StandInGateway,
    error_of,
    free_port,
    running_envoy,
    stand_in_gateway,
    until_serving,
)
from grpc import aio
from hotline.v1 import inference_pb2, inference_pb2_grpc

from services.cli.edge import EdgeSettings
from services.runtime.lifecycle import Process
from services.runtime.settings import ServiceSettings

CHAT = "/v1/chat/completions"


@dataclass
class Lone:
    """An edge without a gateway, and where one may come."""

    address: str
    gateway_address: str
    rest: httpx.AsyncClient

    async def start_gateway(self, notice_s: float = 0) -> tuple[StandInGateway, Process]:
        settings = ServiceSettings(
            address=self.gateway_address, drain_notice_s=notice_s, drain_grace_s=20
        )
        gateway = stand_in_gateway()
        process = Process(gateway, settings)
        await process.start()
        await until_serving(self.address)
        return gateway, process


@pytest_asyncio.fixture(loop_scope="session")
async def lone(tmp_path: Path) -> AsyncGenerator[Lone, None]:
    gateway = f"unix:{tmp_path}/gateway.sock"
    address = f"127.0.0.1:{free_port()}"
    settings = EdgeSettings(address=address, gateways=(gateway,), runtime_folder=tmp_path)
    async with (
        running_envoy(settings) as process,
        httpx.AsyncClient(base_url=f"http://{address}", timeout=20) as rest,
    ):
        async with asyncio.timeout(10):
            while True:  # until the port is open
                try:
                    await rest.get("/nope")
                    break
                except httpx.ConnectError:
                    assert process.returncode is None
                    await asyncio.sleep(0.05)
        yield Lone(address, gateway, rest)


async def test_without_a_gateway_rest_is_503_with_retry_after_and_no_internals(lone: Lone) -> None:
    answer = await lone.rest.post(CHAT, json={})
    error = error_of(answer)
    assert (answer.status_code, error["code"]) == (503, "unavailable")
    assert error["type"] == "service_unavailable_error"
    assert answer.headers["retry-after"] == "1"
    assert "upstream" not in answer.text
    assert "gateway.sock" not in answer.text


async def test_without_a_gateway_grpc_is_unavailable_and_no_internals(lone: Lone) -> None:
    async with aio.insecure_channel(lone.address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        with pytest.raises(aio.AioRpcError) as caught:
            await stub.Generate(inference_pb2.GenerateRequest(), timeout=5).read()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert caught.value.details() == "No gateway is serving right now; try again."


async def test_a_gateway_that_comes_is_found_within_the_health_interval(lone: Lone) -> None:
    _, process = await lone.start_gateway()
    assert (await lone.rest.post(CHAT, json={})).status_code == 200
    await process.stop()


async def test_a_draining_gateway_ends_its_streams_and_gets_no_new_calls(lone: Lone) -> None:
    gateway, process = await lone.start_gateway(notice_s=5)
    async with lone.rest.stream("POST", CHAT, json={"do": "step"}) as answer:
        events = answer.aiter_raw()
        received = [await anext(events)]
        stopping = asyncio.ensure_future(process.stop())
        async with asyncio.timeout(4):  # within the notice: by its health, not by refusals
            while (await lone.rest.post(CHAT, json={})).status_code == 200:
                await asyncio.sleep(0.1)
        assert not stopping.done()
        gateway.step.set()
        async for chunk in events:
            received.append(chunk)
            gateway.step.set()
    assert received[-1] == b"data: [DONE]\n\n"
    await asyncio.wait_for(stopping, 5)


async def test_a_gateway_that_dies_before_it_answers_is_503(lone: Lone) -> None:
    gateway, process = await lone.start_gateway()
    call = asyncio.ensure_future(lone.rest.post(CHAT, json={"do": "hang_silently"}))
    await asyncio.wait_for(gateway.started.wait(), 5)
    await process._server.stop(0)
    answer = await call
    assert answer.status_code in (499, 503)
    error_of(answer)
    await process.stop()
