"""What every process tells of itself: calls, errors, the event loop; and channelz."""

import asyncio
import time

import grpc
import httpx
import pytest
from grpc import aio
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from hotline.v1 import worker_pb2, worker_pb2_grpc

from services.runtime.channel import open_channel
from services.runtime.errors import OverloadedError
from services.runtime.lifecycle import Process, Service
from services.runtime.settings import ServiceSettings

WORKER = 'method="{}",service="hotline.v1.WorkerService"'


class Blocking(worker_pb2_grpc.WorkerServiceServicer):
    """GetStatus does what a handler must never do."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def GetStatus(self, request, context):
        time.sleep(0.2)
        return worker_pb2.GetStatusResponse()

    async def Abort(self, request, context):
        raise OverloadedError("full")

    async def Generate(self, request, context):
        yield worker_pb2.WorkerGenerateEvent()
        await self.go_on.wait()


class BlockingService(Service):
    def __init__(self) -> None:
        super().__init__()
        self.servicer = Blocking()

    def register(self, server: aio.Server) -> list[str]:
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(self.servicer, server)
        return ["hotline.v1.WorkerService"]

    async def warm(self) -> None:
        return

    async def close(self) -> None:
        return


class Running:
    """A process, its metrics, and a channel to it."""

    def __init__(self, service: BlockingService, channel: aio.Channel) -> None:
        self.servicer, self.channel = service.servicer, channel
        self._url = f"http://127.0.0.1:{service.metrics.port}/metrics"
        self.worker = worker_pb2_grpc.WorkerServiceStub(channel)

    async def samples(self) -> dict[str, float]:
        async with httpx.AsyncClient() as client:
            text = (await client.get(self._url)).text
        lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in lines}

    async def until(self, name: str, value: float) -> None:
        async with asyncio.timeout(10):
            while (await self.samples()).get(name) != value:
                await asyncio.sleep(0.01)


async def started(**fields: object) -> tuple[Process, BlockingService]:
    service = BlockingService()
    settings = ServiceSettings(
        metrics_address="127.0.0.1:0", drain_notice_s=0, drain_grace_s=0, **fields
    )
    process = Process(service, settings)
    await process.start()
    return process, service


@pytest.fixture
async def running():
    process, service = await started()
    async with open_channel(f"127.0.0.1:{process.port}") as channel:
        yield Running(service, channel)
    await process.stop()


async def test_a_planted_block_of_the_loop_is_seen_in_its_lag(running):
    await asyncio.sleep(0.2)  # the loop's own ticks
    await running.worker.GetStatus(worker_pb2.GetStatusRequest(), timeout=5)
    await asyncio.sleep(0.2)
    samples = await running.samples()
    assert 0.14 < samples["hotline_event_loop_lag_max_seconds"] < 5
    assert samples["hotline_event_loop_lag_p99_seconds"] > 0.1
    late = samples["hotline_event_loop_lag_seconds_count"]
    assert late - samples['hotline_event_loop_lag_seconds_bucket{le="0.1"}'] >= 1
    assert samples["hotline_event_loop_lag_seconds_sum"] > 0.14


async def test_a_quiet_loop_has_little_lag(running):
    await asyncio.sleep(0.3)
    samples = await running.samples()
    assert samples["hotline_event_loop_lag_seconds_count"] >= 3
    # The bound has slack for a busy machine; what is planted above is far beyond what is seen here.
    assert samples["hotline_event_loop_lag_seconds_sum"] < 2


async def test_calls_are_counted_by_their_code_and_errors_by_their_reason(running):
    for _ in range(2):
        with pytest.raises(aio.AioRpcError):
            await running.worker.Abort(worker_pb2.AbortRequest(), timeout=5)
    await running.worker.GetStatus(worker_pb2.GetStatusRequest(), timeout=5)
    samples = await running.samples()
    requests = 'hotline_grpc_requests_total{{code="{}",{}}}'
    assert samples[requests.format("RESOURCE_EXHAUSTED", WORKER.format("Abort"))] == 2
    assert samples[requests.format("OK", WORKER.format("GetStatus"))] == 1
    assert samples['hotline_errors_total{reason="OVERLOADED"}'] == 2
    seconds = "hotline_grpc_request_seconds_sum{" + WORKER.format("GetStatus") + "}"
    assert 0.19 < samples[seconds] < 5


async def test_a_stream_is_running_until_it_ends(running):
    name = "hotline_grpc_requests_running{" + WORKER.format("Generate") + "}"
    call = running.worker.Generate(worker_pb2.WorkerGenerateRequest(), timeout=10)
    await call.read()
    assert (await running.samples())[name] == 1
    running.servicer.go_on.set()
    assert await call.read() is aio.EOF
    await running.until(name, 0)


async def test_a_client_s_departure_counts_as_cancelled(running):
    call = running.worker.Generate(worker_pb2.WorkerGenerateRequest(), timeout=10)
    await call.read()
    call.cancel()
    labels = 'code="CANCELLED",' + WORKER.format("Generate")
    await running.until(f"hotline_grpc_requests_total{{{labels}}}", 1)
    assert (await running.samples())[
        f"hotline_grpc_requests_running{{{WORKER.format('Generate')}}}"
    ] == 0


async def test_methods_that_do_not_exist_make_no_series(running):
    for number in range(3):
        with pytest.raises(aio.AioRpcError):
            await running.channel.unary_unary(f"/made.up.Service{number}/Call")(b"", timeout=5)
    assert not [name for name in await running.samples() if "made.up" in name]


async def test_channelz_tells_of_the_servers_connections(running):
    stub = channelz_pb2_grpc.ChannelzStub(running.channel)
    servers = (await stub.GetServers(channelz_pb2.GetServersRequest(), timeout=5)).server
    assert any(server.data.calls_started for server in servers)


async def listed(channel: aio.Channel) -> set[str]:
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([request]))
    return {s.name async for answer in call for s in answer.list_services_response.service}


async def test_channelz_is_listed_by_reflection(running):
    assert "grpc.channelz.v1.Channelz" in await listed(running.channel)


async def test_channelz_can_be_left_out():
    process, _ = await started(channelz=False)
    async with open_channel(f"127.0.0.1:{process.port}") as channel:
        assert "grpc.channelz.v1.Channelz" not in await listed(channel)
        stub = channelz_pb2_grpc.ChannelzStub(channel)
        with pytest.raises(aio.AioRpcError) as raised:
            await stub.GetServers(channelz_pb2.GetServersRequest(), timeout=5)
    await process.stop()
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
