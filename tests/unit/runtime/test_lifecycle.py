"""The states of a process as its peers see them."""

import asyncio

import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.runtime.channel import open_channel
from services.runtime.errors import UnavailableError
from services.runtime.lifecycle import Process, Service, State
from services.runtime.settings import ServiceSettings

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Slow(Service):
    """Warms up until told; counts its ends."""

    def __init__(self) -> None:
        super().__init__()
        self.warmed, self.closes = asyncio.Event(), 0

    def register(self, server: aio.Server) -> list[str]:
        return ["hotline.v1.Slow", "hotline.v1.Steady"]

    steady_names = frozenset({"hotline.v1.Steady"})

    async def warm(self) -> None:
        await self.warmed.wait()

    async def close(self) -> None:
        self.closes += 1


def process(service: Service, **fields: object) -> Process:
    return Process(service, ServiceSettings(address="127.0.0.1:0", **fields))


async def health(port: int, name: str = "") -> int:
    async with open_channel(f"127.0.0.1:{port}") as channel:
        request = health_pb2.HealthCheckRequest(service=name)
        return (await health_pb2_grpc.HealthStub(channel).Check(request, timeout=5)).status


async def started(running: Process) -> asyncio.Task[None]:
    starting = asyncio.ensure_future(running.start())
    while running.state is not State.WARMING:
        await asyncio.sleep(0.01)
    return starting


async def test_while_warming_the_port_is_open_and_says_not_serving():
    service = Slow()
    running = process(service, drain_notice_s=0)
    starting = await started(running)
    assert await health(running.port) == NOT_SERVING
    with pytest.raises(UnavailableError):
        service.require_serving()
    service.warmed.set()
    await starting
    assert await health(running.port) == SERVING
    await running.stop()


async def test_a_service_that_loses_its_upstreams_is_not_ready_but_its_steady_names_are():
    service = Slow()
    service.warmed.set()
    running = process(service, drain_notice_s=0)
    await running.start()
    await running.set_ready(False)
    assert await health(running.port) == NOT_SERVING
    assert await health(running.port, "hotline.v1.Slow") == NOT_SERVING
    assert await health(running.port, "hotline.v1.Steady") == SERVING
    await running.set_ready(True)
    assert await health(running.port) == SERVING
    await running.stop()


async def test_draining_says_so_before_it_refuses():
    service = Slow()
    service.warmed.set()
    running = process(service, drain_notice_s=0.5)
    await running.start()
    stopping = asyncio.ensure_future(running.stop())
    await asyncio.sleep(0.1)
    assert await health(running.port) == NOT_SERVING
    await stopping
    assert running.state is State.STOPPED
    with pytest.raises(UnavailableError):
        service.require_serving()


async def test_stopping_twice_closes_once():
    service = Slow()
    service.warmed.set()
    running = process(service, drain_notice_s=0)
    await running.start()
    await running.stop()
    await running.stop()
    assert service.closes == 1


async def test_an_address_that_is_taken_is_an_error():
    first, second = Slow(), Slow()
    first.warmed.set()
    running = process(first, drain_notice_s=0)
    await running.start()
    other = Process(second, ServiceSettings(address=f"127.0.0.1:{running.port}"))
    with pytest.raises(RuntimeError):
        await other.start()
    await other.stop()
    await running.stop()


async def test_a_background_task_that_fails_ends_the_process_loudly():
    service = Slow()
    running = process(service)

    async def breaks() -> None:
        raise ValueError("cause")

    task = asyncio.ensure_future(breaks())
    service.own(task)
    await asyncio.wait_for(running.failed.wait(), 5)
    assert isinstance(running.failure, ValueError)


async def test_a_background_task_that_is_cancelled_is_no_failure():
    service = Slow()
    running = process(service)
    task = asyncio.ensure_future(asyncio.sleep(30))
    service.own(task)
    task.cancel()
    await asyncio.wait((task,))
    await asyncio.sleep(0)
    assert running.failure is None


async def test_a_service_may_warm_up_again_and_says_so_all_the_while():
    service = Slow()
    service.warmed.set()
    running = process(service, drain_notice_s=0)
    await running.start()
    async with running.warming():
        assert running.state is State.WARMING
        assert await health(running.port) == NOT_SERVING
        assert await health(running.port, "hotline.v1.Steady") == NOT_SERVING
        with pytest.raises(UnavailableError):
            service.require_serving()
    assert running.state is State.SERVING
    assert await health(running.port) == SERVING
    service.require_serving()
    await running.stop()


async def test_a_stop_during_a_second_warm_up_is_not_taken_back():
    service = Slow()
    service.warmed.set()
    running = process(service, drain_notice_s=0)
    await running.start()
    async with running.warming():
        await running.stop()
    assert running.state is State.STOPPED


async def test_a_second_warm_up_that_begins_while_draining_changes_no_state():
    service = Slow()
    service.warmed.set()
    running = process(service, drain_notice_s=0.2)
    await running.start()
    stopping = asyncio.ensure_future(running.stop())
    await asyncio.sleep(0.05)
    async with running.warming():
        assert running.state is State.DRAINING
    assert running.state is State.DRAINING
    await stopping


async def test_a_stop_during_a_second_warm_up_gives_no_notice():
    service = Slow()
    service.warmed.set()
    running = process(service, drain_notice_s=30, drain_grace_s=30)
    await running.start()
    async with running.warming():
        await asyncio.wait_for(running.stop(), 5)


async def test_a_second_warm_up_that_fails_leaves_the_process_warming():
    service = Slow()
    service.warmed.set()
    running = process(service, drain_notice_s=0)
    await running.start()
    with pytest.raises(ValueError, match="cause"):
        async with running.warming():
            raise ValueError("cause")
    assert running.state is State.WARMING
    assert await health(running.port) == NOT_SERVING
    await running.stop()
