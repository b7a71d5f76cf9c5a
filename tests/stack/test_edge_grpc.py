"""Native gRPC and gRPC-Web through the edge: public services pass, internal ones do not exist."""

import asyncio
import json
from typing import Any

import grpc
import httpx
import pytest
from edge_process import Edge
from google.rpc import error_details_pb2, status_pb2
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from hotline.v1 import generation_pb2, inference_pb2, inference_pb2_grpc


async def generate(
    edge: Edge, request: inference_pb2.GenerateRequest, timeout_s: float | None = 10
) -> list[generation_pb2.GenerationEvent]:
    async with aio.insecure_channel(edge.address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        return [event async for event in stub.Generate(request, timeout=timeout_s)]


async def test_a_native_stream_passes(edge: Edge) -> None:
    (event,) = await generate(edge, inference_pb2.GenerateRequest())
    assert event.sequence == 1


@pytest.mark.parametrize(
    ("timeout_s", "least_s", "most_s"),
    [
        pytest.param(7, 6, 7.1, id="7 s"),
        pytest.param(7200, 7100, 7300, id="above any limit of the edge"),
    ],
)
async def test_the_callers_deadline_reaches_the_gateway(
    edge: Edge, timeout_s: float, least_s: float, most_s: float
) -> None:
    (event,) = await generate(edge, inference_pb2.GenerateRequest(), timeout_s)
    assert least_s < json.loads(event.text.text)["limit_s"] <= most_s


async def test_without_a_deadline_the_edge_sets_none(edge: Edge) -> None:
    (event,) = await generate(edge, inference_pb2.GenerateRequest(), None)
    limit_s = json.loads(event.text.text)["limit_s"]
    assert limit_s is None or limit_s > 1e6


async def test_a_native_call_gets_a_request_id(edge: Edge) -> None:
    (event,) = await generate(edge, inference_pb2.GenerateRequest())
    assert json.loads(event.text.text)["request_id"]


async def test_status_message_and_details_pass_unchanged(edge: Edge) -> None:
    with pytest.raises(aio.AioRpcError) as caught:
        await generate(edge, inference_pb2.GenerateRequest(session_id="SESSION_NOT_FOUND"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert caught.value.details() == "the message"
    trailers = dict(caught.value.trailing_metadata() or ())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    info = error_details_pb2.ErrorInfo()
    status.details[0].Unpack(info)
    assert info.reason == "SESSION_NOT_FOUND"


@pytest.mark.parametrize(
    "method",
    [
        "/hotline.v1.TokenizerService/Detokenise",
        "/hotline.v1.TokenizerService/Render",
        "/hotline.v1.WorkerService/Generate",
        "/hotline.v1.AdminService/Drain",
        "/hotline.v1.AdminService/GetSystemStatus",
        "/grpc.channelz.v1.Channelz/GetServers",
        "/hotline.v1.InferenceServiceX/Generate",
        "/x.hotline.v1.InferenceService/Generate",
        "/nobody.v1.Nothing/Do",
    ],
)
async def test_an_internal_or_unknown_service_is_unimplemented_at_the_edge(
    edge: Edge, method: str
) -> None:
    async with aio.insecure_channel(edge.address) as channel:
        call: Any = channel.unary_unary(method, request_serializer=bytes)
        with pytest.raises(aio.AioRpcError) as caught:
            await call(b"", timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert caught.value.details() == "This method is not served here."


async def test_an_internal_service_is_404_for_a_rest_client(rest: httpx.AsyncClient) -> None:
    answer = await rest.post("/hotline.v1.TokenizerService/Render", content=b"")
    assert answer.status_code == 404


async def test_the_callers_departure_reaches_the_handler_at_once(edge: Edge) -> None:
    edge.gateway.started.clear()
    edge.gateway.cancelled.clear()
    request = inference_pb2.GenerateRequest(generation_id="hang")
    call = asyncio.ensure_future(generate(edge, request))
    await asyncio.wait_for(edge.gateway.started.wait(), 5)
    call.cancel()
    await asyncio.wait_for(edge.gateway.cancelled.wait(), 1)


async def test_health_watch_passes(edge: Edge) -> None:
    async with aio.insecure_channel(edge.address) as channel:
        call = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        async for answer in call:
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
            break
        call.cancel()


async def test_reflection_lists_the_services(edge: Edge) -> None:
    async with aio.insecure_channel(edge.address) as channel:
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(
            iter([request])
        )
        names = [s.name async for a in call for s in a.list_services_response.service]
    assert "hotline.v1.InferenceService" in names


@pytest.mark.parametrize("size", [pytest.param(12_000_000, id="12 MB")])
async def test_a_large_native_message_passes(edge: Edge, size: int) -> None:
    request = inference_pb2.GenerateRequest()
    request.messages.add().parts.parts.add().image.data = bytes(size)
    (event,) = await generate(edge, request)
    assert event.sequence == 1


async def test_a_native_message_above_the_limit_is_resource_exhausted(edge: Edge) -> None:
    request = inference_pb2.GenerateRequest()
    request.messages.add().parts.parts.add().image.data = bytes(42 * 1024 * 1024)
    with pytest.raises(aio.AioRpcError) as caught:
        await generate(edge, request)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_grpc_web_passes_with_its_trailers_in_the_body(rest: httpx.AsyncClient) -> None:
    message = inference_pb2.GenerateRequest().SerializeToString()
    body = b"\0" + len(message).to_bytes(4, "big") + message
    headers = {"content-type": "application/grpc-web+proto", "origin": "http://localhost:3000"}
    answer = await rest.post("/hotline.v1.InferenceService/Generate", content=body, headers=headers)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/grpc-web+proto"
    length = int.from_bytes(answer.content[1:5], "big")
    event = generation_pb2.GenerationEvent.FromString(answer.content[5 : 5 + length])
    assert event.sequence == 1
    trailers = answer.content[5 + length :]
    assert trailers[0] == 0x80
    assert b"grpc-status:0" in trailers


async def test_garbage_instead_of_a_message_is_an_error_and_the_next_call_is_served(
    edge: Edge,
) -> None:
    async with aio.insecure_channel(edge.address) as channel:
        method = "/hotline.v1.InferenceService/Generate"
        call: Any = channel.unary_stream(method, request_serializer=bytes)(b"\xff" * 64)
        with pytest.raises(aio.AioRpcError):
            await call.read()
    assert await generate(edge, inference_pb2.GenerateRequest())
