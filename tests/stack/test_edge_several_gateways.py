"""One edge before several gateways: one that dies takes no call with it that comes after; its streams: test_kill_matrix."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from edge_process import (
    StandInGateway,
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
CALLS = 20


@dataclass
class Several:
    """An edge, and the gateways behind it."""

    address: str
    rest: httpx.AsyncClient
    gateways: list[tuple[StandInGateway, Process]]


@pytest.fixture
async def several(tmp_path: Path) -> AsyncGenerator[Several, None]:
    gateways = []
    for number in range(2):
        settings = ServiceSettings(
            address=f"unix:{tmp_path}/{number}.sock", drain_notice_s=0, drain_grace_s=0
        )
        gateway = stand_in_gateway()
        process = Process(gateway, settings)
        await process.start()
        gateways.append((gateway, process))
    settings = EdgeSettings(
        address=f"127.0.0.1:{free_port()}",
        gateways=tuple(process._settings.address for _, process in gateways),
        runtime_folder=tmp_path,
    )
    async with (
        running_envoy(settings),
        httpx.AsyncClient(base_url=f"http://{settings.address}", timeout=20) as rest,
    ):
        await until_serving(settings.address)
        yield Several(settings.address, rest, gateways)
    for _, process in gateways:
        await process.stop()


async def both_are_used(several: Several) -> None:
    """Until the edge has found both healthy: two streams, and each gateway has one."""
    for _ in range(50):
        async with (
            several.rest.stream("POST", CHAT, json={"do": "hang"}) as one,
            several.rest.stream("POST", CHAT, json={"do": "hang"}) as two,
        ):
            assert (one.status_code, two.status_code) == (200, 200)
            used = all(gateway.started.is_set() for gateway, _ in several.gateways)
        if used:
            return
    raise AssertionError("one gateway got everything")


async def test_streams_spread_over_the_gateways_by_their_open_requests(several: Several) -> None:
    await both_are_used(several)


async def test_calls_just_after_a_gateway_died_all_succeed_on_the_other(several: Several) -> None:
    await both_are_used(several)
    await several.gateways[0][1]._server.stop(0)  # to the edge as good as kill -9: no word of it
    answers = [(await several.rest.post(CHAT, json={})).status_code for _ in range(CALLS)]
    assert answers == [200] * CALLS


async def test_native_calls_just_after_a_gateway_died_all_succeed_on_the_other(
    several: Several,
) -> None:
    await both_are_used(several)
    await several.gateways[1][1]._server.stop(0)
    async with aio.insecure_channel(several.address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        for _ in range(CALLS):
            request = inference_pb2.GenerateRequest()
            events = [event async for event in stub.Generate(request, timeout=10)]
            assert len(events) == 1


async def started(several: Several) -> int:
    """Which gateway has a call that hangs, begun since the events were cleared."""
    waits = [asyncio.ensure_future(gateway.started.wait()) for gateway, _ in several.gateways]
    done, others = await asyncio.wait(waits, timeout=5, return_when=asyncio.FIRST_COMPLETED)
    for other in others:
        other.cancel()
    (one,) = done
    for gateway, _ in several.gateways:
        gateway.started.clear()
    return waits.index(one)


async def gateway_of(several: Several, name: str, header: str = "x-session-id") -> int:
    """Which gateway gets a REST call of this name."""
    for gateway, _ in several.gateways:
        gateway.started.clear()
    headers = {header: name}
    async with several.rest.stream("POST", CHAT, json={"do": "hang"}, headers=headers):
        return await started(several)


async def test_calls_of_one_session_meet_in_one_gateway_and_those_of_others_spread(
    several: Several,
) -> None:
    await both_are_used(several)
    names = [f"session-{number}" for number in range(24)]
    first = [await gateway_of(several, name) for name in names]
    assert set(first) == {0, 1}
    for _ in range(2):
        assert [await gateway_of(several, name) for name in names] == first


async def test_rest_and_native_calls_of_one_generation_meet_in_one_gateway(
    several: Several,
) -> None:
    await both_are_used(several)
    async with aio.insecure_channel(several.address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        for number in range(8):
            name = f"generation-{number}"
            rest = await gateway_of(several, name, "x-generation-id")
            call = stub.Generate(
                inference_pb2.GenerateRequest(generation_id="hang"),
                timeout=10,
                metadata=(("x-generation-id", name),),
            )
            assert await started(several) == rest
            call.cancel()


async def test_a_session_whose_gateway_died_goes_on_at_another(several: Several) -> None:
    await both_are_used(several)
    chosen = await gateway_of(several, "one")
    await several.gateways[chosen][1]._server.stop(0)
    headers = {"x-session-id": "one"}
    answers = [(await several.rest.post(CHAT, json={}, headers=headers)) for _ in range(CALLS)]
    assert [answer.status_code for answer in answers] == [200] * CALLS
