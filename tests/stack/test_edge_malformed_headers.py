"""Headers that gRPC's core cannot read are refused at the edge: behind it, all clients share a few connections."""

import httpx
import pytest
from edge_process import Edge
from grpc import aio
from hotline.v1 import inference_pb2, inference_pb2_grpc

GENERATE = "/hotline.v1.InferenceService/Generate"
EMPTY = bytes(5)
"""One gRPC message of no bytes."""

MALFORMED = [
    pytest.param({"grpc-timeout": "abc"}, "grpc-timeout", id="timeout-word"),
    pytest.param({"grpc-timeout": "99999999999S"}, "grpc-timeout", id="timeout-too-long"),
    pytest.param({"grpc-timeout": "-1S"}, "grpc-timeout", id="timeout-negative"),
    pytest.param({"grpc-timeout": "1X"}, "grpc-timeout", id="timeout-unit"),
    pytest.param({"grpc-timeout": "1"}, "grpc-timeout", id="timeout-without-unit"),
    pytest.param({"grpc-timeout": ""}, "grpc-timeout", id="timeout-empty"),
    pytest.param({"grpc-encoding": "bogus"}, "grpc-encoding", id="encoding"),
    pytest.param({"some-bin": "%%%"}, "some-bin", id="no-base64"),
    pytest.param({"some-bin": "AAAAA"}, "some-bin", id="cut-base64"),
    pytest.param({"some-bin": "BBBBBB=="}, "some-bin", id="bits-beyond-the-last-byte"),
    pytest.param({"some-bin": "AAAA,AAAA"}, "some-bin", id="two-in-one"),
]
HARMLESS = [
    pytest.param({"grpc-previous-rpc-attempts": "many"}, id="attempts"),
    pytest.param({"grpc-trace-bin": "%%%"}, id="trace"),
    pytest.param({"grpc-retry-pushback-ms": "soon"}, id="pushback"),
    pytest.param({"lb-cost-bin": "%"}, id="load"),
    pytest.param({"x!odd#name": "1"}, id="name"),
    pytest.param({"grpc-accept-encoding": "%%%"}, id="accepted-encodings"),
    pytest.param({"x-title": "é"}, id="value-in-utf-8"),
    pytest.param({"grpc-timeout": "10S", "some-bin": "AAAAAA=="}, id="well-formed"),
]


async def posted(edge: Edge, kind: str, headers: dict[str, str]) -> httpx.Response:
    async with httpx.AsyncClient(http1=kind != "application/grpc", http2=True) as client:
        url = f"http://{edge.address}{GENERATE}"
        sent = {"content-type": kind, "te": "trailers"} | {
            k: v.encode() for k, v in headers.items()
        }
        return await client.post(url, content=EMPTY, headers=sent, timeout=10)


async def others_are_served(edge: Edge) -> None:
    """New clients, with a deadline each, as many as reach every connection between edge and gateway."""
    for _ in range(12):
        async with aio.insecure_channel(edge.address) as channel:
            stub = inference_pb2_grpc.InferenceServiceStub(channel)
            call = stub.Generate(inference_pb2.GenerateRequest(), timeout=10)
            assert [event.sequence async for event in call] == [1]


@pytest.mark.parametrize("kind", ["application/grpc", "application/grpc-web+proto"])
@pytest.mark.parametrize(("headers", "name"), MALFORMED)
async def test_a_malformed_header_fails_its_own_call_and_no_other(
    edge: Edge, kind: str, headers: dict[str, str], name: str
) -> None:
    answer = await posted(edge, kind, headers)
    assert answer.status_code == 200
    assert answer.headers["grpc-status"] == "3"
    assert answer.headers["grpc-message"].startswith(f"{name}: must be")
    await others_are_served(edge)


@pytest.mark.parametrize("headers", HARMLESS)
async def test_headers_of_a_hop_are_nobodys_business(edge: Edge, headers: dict[str, str]) -> None:
    answer = await posted(edge, "application/grpc-web+proto", headers)
    assert answer.status_code == 200
    assert b"grpc-status:0" in answer.content
    await others_are_served(edge)


@pytest.mark.parametrize("headers", [param.values[0] for param in (*MALFORMED, *HARMLESS)], ids=str)
async def test_a_rest_call_may_carry_any_of_them(edge: Edge, headers: dict[str, str]) -> None:
    async with httpx.AsyncClient() as client:
        url = f"http://{edge.address}/v1/chat/completions"
        sent = {name: value.encode() for name, value in headers.items()}
        answer = await client.post(url, json={"messages": []}, headers=sent, timeout=10)
    assert answer.status_code == 200
    await others_are_served(edge)


@pytest.mark.parametrize("kind", ["application/grpc-web+json", "application/grpc-webx"])
async def test_a_kind_of_grpc_web_that_is_none_is_415(edge: Edge, kind: str) -> None:
    answer = await posted(edge, kind, {})
    assert answer.status_code == 415
    assert "application/grpc-web-text" in answer.text
