"""Headers by which a client could pretend to be somebody never pass the edge, on any of its routes."""

import json

import httpx
import pytest
from edge_process import Edge
from grpc import aio
from hotline.v1 import generation_pb2, inference_pb2, inference_pb2_grpc

PRETENCE = {
    "x-hotline-owner": "somebody",
    "x-hotline-anything": "else",
    "x-forwarded-client-cert": 'Subject="CN=somebody"',
    "x-forwarded-user": "somebody",
    "x-remote-user": "somebody",
    "x-auth-request-user": "somebody",
    "x-envoy-internal": "true",
    "x-envoy-external-address": "10.0.0.1",
    "x-envoy-original-path": "/health",
    "x-envoy-upstream-rq-timeout-ms": "1",
    "x-http-status": "200",
}
EDGES_OWN = {"x-envoy-external-address", "x-envoy-original-path"}
"""The edge sets these itself; of their values nothing is the client's."""
SENT_ON = "x-kept"
GENERATE = "/hotline.v1.InferenceService/Generate"


def arrived(names: list[str]) -> list[str]:
    """Which of them the gateway saw; `x-kept` shows that headers arrive at all."""
    assert SENT_ON in names
    return [name for name in names if name in PRETENCE and name not in EDGES_OWN]


def cased(headers: dict[str, str], upper: bool) -> dict[str, str]:
    named = {**headers, SENT_ON: "1", "authorization": "Bearer EMPTY"}
    return {name.title() if upper else name: value for name, value in named.items()}


@pytest.mark.parametrize(
    ("http2", "upper"),
    [
        pytest.param(False, True, id="HTTP/1.1, Title-Case"),
        pytest.param(False, False, id="HTTP/1.1, lower-case"),
        pytest.param(True, False, id="h2"),
    ],
)
async def test_over_rest(edge: Edge, http2: bool, upper: bool) -> None:
    async with httpx.AsyncClient(
        base_url=edge.url, http2=http2, http1=not http2, timeout=20
    ) as rest:
        headers = cased(PRETENCE, upper)
        answer = await rest.post("/v1/chat/completions", json={}, headers=headers)
    assert answer.status_code == 200
    metadata = dict(answer.json()["metadata"])
    assert arrived([*metadata]) == []
    assert metadata["authorization"] == "Bearer EMPTY"
    assert not [name for name in EDGES_OWN if metadata.get(name) == PRETENCE[name]]


async def test_over_native_grpc(edge: Edge) -> None:
    async with aio.insecure_channel(edge.address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        call = stub.Generate(
            inference_pb2.GenerateRequest(),
            timeout=20,
            metadata=tuple(cased(PRETENCE, False).items()),
        )
        (event,) = [event async for event in call]
    keys = json.loads(event.text.text)["keys"]
    assert arrived(keys) == []
    assert "authorization" in keys


async def test_over_grpc_web(edge: Edge, rest: httpx.AsyncClient) -> None:
    message = inference_pb2.GenerateRequest().SerializeToString()
    answer = await rest.post(
        GENERATE,
        content=b"\0" + len(message).to_bytes(4, "big") + message,
        headers={
            **cased(PRETENCE, True),
            "content-type": "application/grpc-web+proto",
            "x-grpc-web": "1",
        },
    )
    size = int.from_bytes(answer.content[1:5], "big")
    event = generation_pb2.GenerationEvent.FromString(answer.content[5 : 5 + size])
    keys = json.loads(event.text.text)["keys"]
    assert arrived(keys) == []
    assert "authorization" in keys
