"""gRPC-Web through the edge, byte by byte as browsers' clients speak it: binary and text, whole and streamed, refusals."""

import base64
import json
import re
from collections.abc import Iterator

import httpx
import pytest
from edge_process import Edge
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2
from hotline.v1 import generation_pb2, inference_pb2

PAGE = "http://localhost:3000"
BINARY, TEXT = "application/grpc-web+proto", "application/grpc-web-text"
GENERATE = "/hotline.v1.InferenceService/Generate"
COUNT = "/hotline.v1.InferenceService/CountTokens"


def frame(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message


def frames(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Flag and content of each frame."""
    while body:
        length = int.from_bytes(body[1:5], "big")
        assert len(body) >= 5 + length
        yield body[0], body[5 : 5 + length]
        body = body[5 + length :]


def trailers(content: bytes) -> dict[str, str]:
    lines = [line for line in content.decode().split("\r\n") if line]
    return {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}


def from_text(body: bytes) -> bytes:
    """Base64 in pieces, each padded on its own, as grpc-web-text allows."""
    return b"".join(base64.b64decode(p) for p in re.findall(rb"[^=]+={0,2}", body))


async def call(
    rest: httpx.AsyncClient, path: str, message: bytes, content_type: str = BINARY, **headers: str
) -> httpx.Response:
    body = frame(message)
    if content_type.startswith(TEXT):
        body = base64.b64encode(body)
    sent = {"content-type": content_type, "origin": PAGE, "x-grpc-web": "1"}
    sent |= {"x-user-agent": "grpc-web-javascript/0.1", "accept": content_type}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    return await rest.post(path, content=body, headers=sent)


def read(answer: httpx.Response) -> tuple[list[bytes], dict[str, str]]:
    """Messages, and trailers wherever they are."""
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == PAGE
    is_text = answer.headers["content-type"].startswith(TEXT)
    found = list(frames(from_text(answer.content) if is_text else answer.content))
    messages = [content for flag, content in found if flag == 0]
    [*ends] = [content for flag, content in found if flag == 0x80]
    if not ends:  # nothing but trailers: they are headers
        return messages, dict(answer.headers)
    assert found[-1][0] == 0x80
    return messages, trailers(ends[0])


KINDS = [
    pytest.param(BINARY, id="binary"),
    pytest.param("application/grpc-web", id="binary by its short name"),
    pytest.param(TEXT, id="text"),
    pytest.param(TEXT + "+proto", id="text by its long name"),
]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_unary_call_passes(rest: httpx.AsyncClient, kind: str) -> None:
    request = inference_pb2.CountTokensRequest(model="seven letters").SerializeToString()
    answer = await call(rest, COUNT, request, kind)
    assert answer.headers["content-type"].startswith(kind)
    [message], ends = read(answer)
    assert inference_pb2.CountTokensResponse.FromString(message).prompt_tokens == 13
    assert ends["grpc-status"] == "0"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_passes_message_by_message(rest: httpx.AsyncClient, kind: str) -> None:
    request = inference_pb2.GenerateRequest(generation_id="three").SerializeToString()
    messages, ends = read(await call(rest, GENERATE, request, kind))
    events = [generation_pb2.GenerationEvent.FromString(message) for message in messages]
    assert [event.sequence for event in events] == [1, 2, 3]
    assert ends["grpc-status"] == "0"


async def test_a_stream_s_first_message_does_not_wait_for_the_last(
    edge: Edge, rest: httpx.AsyncClient
) -> None:
    request = inference_pb2.GenerateRequest(generation_id="step").SerializeToString()
    edge.gateway.step.clear()
    headers = {"content-type": BINARY, "origin": PAGE}
    async with rest.stream("POST", GENERATE, content=frame(request), headers=headers) as answer:
        pieces = answer.aiter_raw()
        first = await anext(pieces)
        assert first[0] == 0
        edge.gateway.step.set()
        rest_of_it = b"".join([piece async for piece in pieces])
    assert [flag for flag, _ in frames(first + rest_of_it)] == [0, 0, 0x80]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_refusal_carries_code_message_and_details(
    rest: httpx.AsyncClient, kind: str
) -> None:
    request = inference_pb2.GenerateRequest(session_id="SESSION_NOT_FOUND").SerializeToString()
    messages, ends = read(await call(rest, GENERATE, request, kind))
    assert not messages
    assert (ends["grpc-status"], ends["grpc-message"]) == ("5", "the message")
    encoded = ends["grpc-status-details-bin"]
    status = status_pb2.Status.FromString(base64.b64decode(encoded + "=" * (-len(encoded) % 4)))
    info = error_details_pb2.ErrorInfo()
    status.details[0].Unpack(info)
    assert (info.reason, info.domain) == ("SESSION_NOT_FOUND", "hotline.v1")


async def test_an_error_after_the_first_message_is_in_the_last_frame(
    rest: httpx.AsyncClient,
) -> None:
    request = inference_pb2.GenerateRequest(generation_id="fail late").SerializeToString()
    messages, ends = read(await call(rest, GENERATE, request))
    assert len(messages) == 1
    assert (ends["grpc-status"], ends["grpc-message"]) == ("14", "the message")
    assert ends["grpc-status-details-bin"]


async def test_the_page_s_deadline_reaches_the_gateway(rest: httpx.AsyncClient) -> None:
    request = inference_pb2.GenerateRequest().SerializeToString()
    [message], _ = read(await call(rest, GENERATE, request, grpc_timeout="7S"))
    event = generation_pb2.GenerationEvent.FromString(message)
    assert 6 < json.loads(event.text.text)["limit_s"] <= 7


async def test_health_passes(rest: httpx.AsyncClient) -> None:
    [message], _ = read(await call(rest, "/grpc.health.v1.Health/Check", b""))
    answer = health_pb2.HealthCheckResponse.FromString(message)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize(
    "path",
    [
        "/hotline.v1.TokenizerService/Render",
        "/hotline.v1.AdminService/Drain",
        "/grpc.channelz.v1.Channelz/GetServers",
    ],
)
async def test_an_internal_service_is_unimplemented(rest: httpx.AsyncClient, path: str) -> None:
    answer = await call(rest, path, b"")
    assert (answer.status_code, answer.headers["grpc-status"]) == (404, "12")
    assert answer.headers["content-type"] == BINARY
    assert not answer.content


async def test_a_preflight_allows_what_grpc_web_clients_send(rest: httpx.AsyncClient) -> None:
    wanted = {"content-type", "x-grpc-web", "x-user-agent", "grpc-timeout", "authorization"}
    answer = await rest.options(
        GENERATE,
        headers={
            "origin": PAGE,
            "access-control-request-method": "POST",
            "access-control-request-headers": ",".join(sorted(wanted)),
        },
    )
    assert answer.status_code in (200, 204)
    assert answer.headers["access-control-allow-origin"] == PAGE
    allowed = {name.strip() for name in answer.headers["access-control-allow-headers"].split(",")}
    assert wanted <= allowed
    assert "POST" in answer.headers["access-control-allow-methods"]


async def test_a_page_may_read_status_message_details_and_request_id(
    rest: httpx.AsyncClient,
) -> None:
    request = inference_pb2.GenerateRequest(session_id="UNAVAILABLE").SerializeToString()
    answer = await call(rest, GENERATE, request)
    shown = {x.strip() for x in answer.headers["access-control-expose-headers"].split(",")}
    assert {"grpc-status", "grpc-message", "grpc-status-details-bin", "x-request-id"} <= shown


async def test_a_foreign_page_gets_no_permission(rest: httpx.AsyncClient) -> None:
    answer = await call(rest, COUNT, b"", origin="https://evil.example")
    assert "access-control-allow-origin" not in answer.headers


async def test_a_message_above_the_limit_is_resource_exhausted(rest: httpx.AsyncClient) -> None:
    request = inference_pb2.GenerateRequest()
    request.messages.add().parts.parts.add().image.data = bytes(42 * 1024 * 1024)
    _, ends = read(await call(rest, GENERATE, request.SerializeToString()))
    assert ends["grpc-status"] == "8"
