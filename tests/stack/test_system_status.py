"""AdminService: what a gateway knows of itself and of the processes behind it; on its own address only."""

from collections.abc import AsyncGenerator

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hotline.v1 import admin_pb2, admin_pb2_grpc
from sim_stack import SimStack, hello, sim_stack, started_tokenizer, started_worker

from services.runtime.channel import open_channel


@pytest.fixture
async def stack() -> AsyncGenerator[SimStack, None]:
    worker = await started_worker(model_name="autoglm-phone-tiny")
    tokenizer = await started_tokenizer(worker.port)
    try:
        async with sim_stack(tokenizer, worker) as running:
            yield running
    finally:
        await tokenizer.stop()
        await worker.stop()


async def known(stack: SimStack) -> dict[str, admin_pb2.ProcessStatus]:
    async with open_channel(stack.admin_address) as channel:
        stub = admin_pb2_grpc.AdminServiceStub(channel)
        answer = await stub.GetSystemStatus(admin_pb2.GetSystemStatusRequest(), timeout=10)
    return {process.name: process for process in answer.processes}


async def test_every_process_is_told_with_its_role_and_model(stack: SimStack):
    found = await known(stack)
    assert {name: process.role for name, process in found.items()} == {
        "gateway": "gateway",
        "tokenizer-0": "tokenizer",
        "worker-0": "worker",
    }
    assert {process.state for process in found.values()} == {"SERVING"}
    assert (found["worker-0"].model, found["worker-0"].engine) == ("autoglm-phone-tiny", "sim")


async def test_a_running_generation_is_counted(stack: SimStack):
    call = stack.inference.Generate(hello(max_tokens=4000), timeout=30)
    await call.read()
    assert (await known(stack))["gateway"].running == 1
    call.cancel()


async def test_a_worker_that_stopped_does_not_serve(stack: SimStack):
    await stack.worker.stop()
    await stack.until_ready(False)
    assert (await known(stack))["worker-0"].state == "NOT_SERVING"


async def test_the_rest_of_the_admin_service_is_not_built(stack: SimStack):
    async with open_channel(stack.admin_address) as channel:
        stub = admin_pb2_grpc.AdminServiceStub(channel)
        with pytest.raises(aio.AioRpcError) as caught:
            await stub.ListAdapters(admin_pb2.ListAdaptersRequest(), timeout=10)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_where_clients_come_there_is_no_admin_service(stack: SimStack):
    stub = admin_pb2_grpc.AdminServiceStub(stack.channel)
    with pytest.raises(aio.AioRpcError) as caught:
        await stub.GetSystemStatus(admin_pb2.GetSystemStatusRequest(), timeout=10)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_where_operators_come_there_is_nothing_for_clients_and_its_health_is_its_own(
    stack: SimStack,
):
    await stack.worker.stop()
    await stack.until_ready(False)
    async with open_channel(stack.admin_address) as channel:
        health = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(aio.AioRpcError) as caught:
            await channel.unary_unary("/hotline.v1.ModelService/ListModels")(b"", timeout=10)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_without_keys_there_is_nothing_to_reload_and_that_is_no_error(stack: SimStack):
    async with open_channel(stack.admin_address) as channel:
        stub = admin_pb2_grpc.AdminServiceStub(channel)
        await stub.ReloadConfiguration(admin_pb2.ReloadConfigurationRequest(), timeout=10)
