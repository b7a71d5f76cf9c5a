"""What REST clients see of the gateway's answers through the edge."""

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator

import httpx
import pytest
from edge_process import EVENTS, Edge, error_of, make_error

CHAT = "/v1/chat/completions"
LIMIT_BYTES = 32 * 1024 * 1024


async def chunks(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 65536):
        yield body[start : start + 65536]


async def test_a_body_reaches_the_gateway_byte_for_byte(rest: httpx.AsyncClient) -> None:
    body = b'{ "do":"echo",\r\n"x": "\xe4\xbd\xa0\xe5\xa5\xbd \\ud83d\\ude00", "unknown" : [1.50, 1e3] }\n'
    answer = await rest.post(CHAT, content=body, headers={"content-type": "application/json"})
    assert answer.json()["sha256"] == hashlib.sha256(body).hexdigest()
    assert answer.json()["content_type"] == "application/json"


@pytest.mark.parametrize("chunked", [False, True], ids=["content-length", "chunked"])
@pytest.mark.parametrize(
    "size",
    [
        pytest.param(0, id="empty"),
        pytest.param(1_200_000, id="1.2 MB"),
        pytest.param(8_000_000, id="8 MB"),
        pytest.param(LIMIT_BYTES, id="32 MiB"),
    ],
)
async def test_a_body_up_to_the_limit_passes(
    rest: httpx.AsyncClient, size: int, chunked: bool
) -> None:
    body = os.urandom(size) if size else b"{}"
    answer = await rest.post(CHAT, content=chunks(body) if chunked else body)
    assert answer.json()["sha256"] == hashlib.sha256(body).hexdigest()


@pytest.mark.parametrize("chunked", [False, True], ids=["content-length", "chunked"])
@pytest.mark.parametrize(
    "size",
    [pytest.param(LIMIT_BYTES + 1, id="a byte too many"), pytest.param(40_000_000, id="40 MB")],
)
async def test_a_body_above_the_limit_is_413_with_the_limit_also_for_clients_that_send_first(
    rest: httpx.AsyncClient, size: int, chunked: bool
) -> None:
    body = bytes(size)
    answer = await rest.post(CHAT, content=chunks(body) if chunked else body)
    error = error_of(answer)
    assert (answer.status_code, error["code"]) == (413, "request_too_large")
    assert str(LIMIT_BYTES) in error["message"]


async def test_a_huge_announced_body_is_refused_before_it_is_sent(edge: Edge) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: edge\r\ncontent-length: 99999999999\r\n\r\n"
    )
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    assert head.startswith(b"HTTP/1.1 413 ")
    writer.close()


async def test_a_stream_arrives_as_the_gateway_framed_it_with_its_headers(
    rest: httpx.AsyncClient,
) -> None:
    answer = await rest.post(CHAT, json={"do": "stream"})
    assert answer.content == b"".join(EVENTS)
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-cache, no-transform"
    assert answer.headers["x-accel-buffering"] == "no"
    assert "content-encoding" not in answer.headers
    assert not [name for name in answer.headers if name.startswith(("grpc-", "x-envoy", "x-http"))]


async def test_each_event_arrives_before_the_next_one_is_made(
    edge: Edge, rest: httpx.AsyncClient
) -> None:
    async with rest.stream("POST", CHAT, json={"do": "step"}) as answer:
        received = []
        async for chunk in answer.aiter_raw():
            received.append(chunk)
            edge.gateway.step.set()
    assert received == EVENTS


@pytest.mark.parametrize("after_first_byte", [False, True], ids=["before", "after the first byte"])
async def test_a_client_that_leaves_is_noticed_by_the_handler_at_once(
    edge: Edge, rest: httpx.AsyncClient, after_first_byte: bool
) -> None:
    edge.gateway.started.clear()
    edge.gateway.cancelled.clear()
    body = {"do": "hang" if after_first_byte else "hang_silently"}
    call = asyncio.ensure_future(rest.post(CHAT, json=body))
    await asyncio.wait_for(edge.gateway.started.wait(), 5)
    call.cancel()
    await asyncio.wait_for(edge.gateway.cancelled.wait(), 1)


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("INVALID_ARGUMENT", 400),
        ("CONTEXT_LENGTH_EXCEEDED", 400),
        ("UNAUTHENTICATED", 401),
        ("MODEL_NOT_FOUND", 404),
        ("GENERATION_CONFLICT", 409),
        ("GENERATION_EXPIRED", 410),
        ("REQUEST_TOO_LARGE", 413),
        ("OVERLOADED", 429),
        ("CANCELLED", 499),
        ("INTERNAL", 500),
        ("UNIMPLEMENTED", 501),
        ("UNAVAILABLE", 503),
        ("DEADLINE_EXCEEDED", 504),
    ],
)
async def test_an_error_of_the_gateway_keeps_its_status_body_and_retry_after(
    rest: httpx.AsyncClient, reason: str, status: int
) -> None:
    order = {"do": "fail", "reason": reason, "param": "messages[0]"}
    answer = await rest.post(CHAT, json=order)
    row = make_error(reason, "").row
    assert answer.status_code == status
    assert error_of(answer) == {
        "message": "the message",
        "type": row.openai_type,
        "param": "messages[0]",
        "code": row.openai_code,
    }
    assert answer.headers["retry-after"] == "7"
    assert "x-http-status" not in answer.headers


@pytest.mark.parametrize(
    ("reason", "retry_after"),
    [
        ("INVALID_ARGUMENT", None),
        ("UNAUTHENTICATED", None),
        ("PERMISSION_DENIED", None),
        ("GENERATION_CONFLICT", None),
        ("OVERLOADED", "1"),
        ("INTERNAL", None),
        ("UNIMPLEMENTED", None),
        ("UNAVAILABLE", "1"),
        ("DEADLINE_EXCEEDED", None),
    ],
)
async def test_a_bare_grpc_error_gets_the_words_of_the_error_table(
    rest: httpx.AsyncClient, reason: str, retry_after: str | None
) -> None:
    answer = await rest.post(CHAT, json={"do": "bare", "reason": reason})
    row = make_error(reason, "").row
    assert answer.status_code == row.http_status
    assert error_of(answer) == {
        "message": "the message",
        "type": row.openai_type,
        "param": None,
        "code": row.openai_code,
    }
    assert answer.headers.get("retry-after") == retry_after


async def test_a_bare_error_message_is_json_whatever_it_holds(rest: httpx.AsyncClient) -> None:
    message = 'say "你好" 100% \\ \n\t\x01</answer>'
    answer = await rest.post(
        CHAT, json={"do": "bare", "reason": "INVALID_ARGUMENT", "message": message}
    )
    assert error_of(answer)["message"] == message


async def test_a_crash_of_the_handler_tells_nothing_of_it(rest: httpx.AsyncClient) -> None:
    answer = await rest.post(CHAT, json={"do": "crash"})
    assert (answer.status_code, error_of(answer)["code"]) == (500, "internal_error")
    assert "stand-in" not in answer.text


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("/v1/models", {"object": "list", "data": []}, id="list"),
        pytest.param("/v1/models?limit=3&x=y", {"object": "list", "data": []}, id="query"),
        pytest.param("/v1/models/tiny", {"id": "tiny", "object": "model"}, id="model"),
        pytest.param("/v1/models/a/b", {"id": "a/b", "object": "model"}, id="slash"),
        pytest.param("/v1/models/a%2Fb", {"id": "a/b", "object": "model"}, id="escaped slash"),
        pytest.param("/v1//models", {"object": "list", "data": []}, id="double slash"),
        pytest.param("/health", {"probe": ""}, id="health"),
        pytest.param("/health/live", {"probe": "live"}, id="live"),
    ],
)
async def test_a_get_route_reaches_its_method(
    rest: httpx.AsyncClient, path: str, expected: dict[str, object]
) -> None:
    answer = await rest.get(path)
    assert (answer.status_code, answer.json()) == (200, expected)


async def test_headers_that_only_the_edge_may_set_are_removed(rest: httpx.AsyncClient) -> None:
    headers = {
        "x-hotline-owner": "somebody",
        "X-Hotline-Anything": "else",
        "authorization": "Bearer EMPTY",
    }
    answer = await rest.post(CHAT, json={}, headers=headers)
    arrived = dict(answer.json()["metadata"])
    assert not [name for name in arrived if name.startswith("x-hotline")]
    assert arrived["authorization"] == "Bearer EMPTY"


async def test_a_client_cannot_set_the_edges_own_time_limits(
    edge: Edge, rest: httpx.AsyncClient
) -> None:
    headers = {"x-envoy-upstream-rq-timeout-ms": "100"}
    async with rest.stream("POST", CHAT, json={"do": "step"}, headers=headers) as answer:
        received = b""
        async for chunk in answer.aiter_raw():
            if not received:
                await asyncio.sleep(0.3)  # longer than the limit that the client asked for
            received += chunk
            edge.gateway.step.set()
    assert received == b"".join(EVENTS)


async def test_a_request_id_is_made_passed_on_and_returned(rest: httpx.AsyncClient) -> None:
    answer = await rest.post(CHAT, json={})
    arrived = dict(answer.json()["metadata"])["x-request-id"]
    assert arrived
    assert answer.headers["x-request-id"] == arrived


async def test_a_clients_own_request_id_is_kept(rest: httpx.AsyncClient) -> None:
    wanted = "00000000-0000-0000-0000-00000000000f"
    answer = await rest.post(CHAT, json={}, headers={"x-request-id": wanted})
    assert dict(answer.json()["metadata"])["x-request-id"] == wanted
    assert answer.headers["x-request-id"] == wanted


async def test_the_access_log_has_a_line_per_request_and_no_key(
    edge: Edge, rest: httpx.AsyncClient
) -> None:
    wanted = "find-me-in-the-log"
    await rest.get(
        "/v1/models", headers={"x-request-id": wanted, "authorization": "Bearer sk-secret"}
    )
    async with asyncio.timeout(15):  # Envoy writes its access log every 10 s
        while wanted not in (text := edge.log.read_text()):
            await asyncio.sleep(0.1)
    assert "sk-secret" not in text
    (line,) = [line for line in text.splitlines() if wanted in line]
    entry = json.loads(line)
    assert (entry["path"], entry["method"], entry["status"]) == ("/v1/models", "GET", 200)
