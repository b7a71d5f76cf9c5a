"""What Envoy itself answers to REST clients: OpenAI's error object, and nothing about Envoy."""

import asyncio
import json

import httpx
import pytest
from edge_process import Edge, error_of

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize("path", ["/", "/nope", "/v1/models/", "/v1/embeddings", "/v2/models"])
async def test_an_unknown_url_is_404_naming_method_and_path(
    rest: httpx.AsyncClient, path: str
) -> None:
    answer = await rest.get(path)
    error = error_of(answer)
    assert (answer.status_code, error["code"]) == (404, "unknown_url")
    assert f"GET {path}." in error["message"]


async def test_a_path_with_quotes_is_still_json(rest: httpx.AsyncClient) -> None:
    answer = await rest.get('/v1/"quoted"\\path')
    assert error_of(answer)["code"] == "unknown_url"


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", CHAT, "POST, OPTIONS"),
        ("DELETE", CHAT, "POST, OPTIONS"),
        ("PUT", "/v1/completions", "POST, OPTIONS"),
        ("POST", "/v1/models", "GET, OPTIONS"),
        ("DELETE", "/v1/models/tiny", "GET, OPTIONS"),
        ("POST", "/health", "GET, OPTIONS"),
    ],
)
async def test_a_wrong_method_is_405_with_an_allow_header(
    rest: httpx.AsyncClient, method: str, path: str, allow: str
) -> None:
    answer = await rest.request(method, path)
    assert (answer.status_code, error_of(answer)["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == allow


async def test_a_value_of_the_wrong_type_in_the_url_is_400(rest: httpx.AsyncClient) -> None:
    answer = await rest.get("/v1/generations/x/events?after=abc")
    assert (answer.status_code, error_of(answer)["type"]) == (400, "invalid_request_error")


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"x-large": "a" * 70_000}, id="too large"),
        pytest.param({f"x-{n}": "a" for n in range(150)}, id="too many"),
    ],
)
async def test_headers_beyond_the_limit_are_431(
    rest: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    answer = await rest.get("/v1/models", headers=headers)
    assert (answer.status_code, error_of(answer)["code"]) == (431, "headers_too_large")


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(b"garbage\r\n\r\n", id="garbage"),
        pytest.param(b"GET /v1/models HTTP/1.1\r\n\r\n", id="no host"),
        pytest.param(b"GET /v1/mo\x00dels HTTP/1.1\r\nhost: a\r\n\r\n", id="NUL in the path"),
        pytest.param(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: x\r\n\r\n",
            id="content-length",
        ),
        pytest.param(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n"
            b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            id="request smuggling",
        ),
        pytest.param(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            id="chunk size",
        ),
    ],
)
async def test_malformed_http_is_400_and_the_next_client_is_served(
    edge: Edge, rest: httpx.AsyncClient, request_bytes: bytes
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
    writer.write(request_bytes)
    head, _, body = (await asyncio.wait_for(reader.read(), 10)).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"envoy" not in head.lower()
    assert json.loads(body)["error"]["type"] == "invalid_request_error"
    assert (await rest.get("/v1/models")).status_code == 200


async def test_http_1_0_is_served(edge: Edge) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
    writer.write(b"GET /v1/models HTTP/1.0\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    assert answer.startswith(b"HTTP/1.0 200 OK")


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1", "https://[::1]:8"])
async def test_a_preflight_from_this_machine_allows_authorization(
    rest: httpx.AsyncClient, origin: str
) -> None:
    headers = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    answer = await rest.options(CHAT, headers=headers)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == origin
    assert "POST" in answer.headers["access-control-allow-methods"]
    allowed = answer.headers["access-control-allow-headers"].split(",")
    assert {"authorization", "content-type", "x-stainless-retry-count"} <= set(allowed)


@pytest.mark.parametrize("origin", ["https://example.com", "http://localhost.example.com", "null"])
async def test_a_page_from_elsewhere_is_not_allowed(rest: httpx.AsyncClient, origin: str) -> None:
    headers = {"origin": origin, "access-control-request-method": "POST"}
    answer = await rest.options(CHAT, headers=headers)
    assert "access-control-allow-origin" not in answer.headers


async def test_answers_and_errors_carry_the_origin_so_that_pages_can_read_them(
    rest: httpx.AsyncClient,
) -> None:
    origin = "http://localhost:5173"
    for path, status in (("/v1/models", 200), ("/nope", 404)):
        answer = await rest.get(path, headers={"origin": origin})
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] in (origin, "*")
