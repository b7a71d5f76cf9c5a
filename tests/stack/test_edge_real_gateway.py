"""The real gateway behind a real Envoy: counting and tokenising by grpcurl, gRPC and gRPC-Web; channelz stays inside."""

import asyncio
import base64
import json
import re
import sys
from pathlib import Path

import httpx
import pytest
from edge_process import free_port, running_envoy, until_serving
from grpc import aio
from hotline.v1 import conversation_pb2, generation_pb2, inference_pb2, inference_pb2_grpc
from sim_stack import LIMIT_S, hello, sim_stack, started_tokenizer, started_worker

from services.cli.edge import EdgeSettings

GRPCURL = Path(sys.executable).with_name("grpcurl")
INFERENCE = "hotline.v1.InferenceService"
USER = {"role": "ROLE_USER", "text": "你好, phone"}


@pytest.fixture(scope="module")
async def behind():
    worker = await started_worker()
    tokenizer = await started_tokenizer(worker.port)
    async with sim_stack(tokenizer, worker) as running:
        yield running
    await tokenizer.stop()
    await worker.stop()


@pytest.fixture(scope="module")
async def edge(behind, tmp_path_factory):
    """The edge's address."""
    settings = EdgeSettings(
        address=f"127.0.0.1:{free_port()}",
        gateways=(f"127.0.0.1:{behind.gateway.port}",),
        runtime_folder=tmp_path_factory.mktemp("edge"),
    )
    async with running_envoy(settings):
        await until_serving(settings.address)
        yield settings.address


async def grpcurl(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(GRPCURL, "-plaintext", "-max-time", "20", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await asyncio.wait_for(process.communicate(), LIMIT_S)
    return process.returncode or 0, output.decode(), errors.decode()


async def asked(address: str, method: str, request: object) -> dict[str, object]:
    code, output, errors = await grpcurl("-d", json.dumps(request), address, method)
    assert code == 0, errors
    answer: dict[str, object] = json.loads(output)
    return answer


async def test_grpcurl_counts_what_the_gateway_counts(behind, edge):
    counted = await asked(edge, f"{INFERENCE}/CountTokens", {"messages": [USER]})
    request = hello(1)
    request.messages[0].text = USER["text"]
    call = behind.inference.Generate(request, timeout=LIMIT_S)
    accepted = (await call.read()).accepted
    call.cancel()
    assert counted["prompt_tokens"] == accepted.prompt_tokens
    assert counted["context_tokens"] > counted["prompt_tokens"]
    assert "image_tokens" not in counted


async def test_grpcurl_turns_a_text_into_ids_and_back(edge):
    tokenized = await asked(edge, f"{INFERENCE}/Tokenize", {"text": USER["text"]})
    answer = await asked(edge, f"{INFERENCE}/Detokenise", {"tokenIds": tokenized["token_ids"]})
    assert answer == {"text": USER["text"]}


async def test_grpcurl_shows_field_value_and_limit_of_a_refusal(edge):
    request = json.dumps({"tokenIds": [4_000_000_000]})
    code, _, errors = await grpcurl("-d", request, edge, f"{INFERENCE}/Detokenise")
    assert code != 0
    for words in ("InvalidArgument", "token_ids[0]: 4000000000", "the size of the vocabulary"):
        assert words in errors


async def test_a_native_client_counts_and_tokenises_through_the_edge(edge):
    async with aio.insecure_channel(edge) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        message = conversation_pb2.Message(role=conversation_pb2.ROLE_USER, text="Hi")
        request = inference_pb2.CountTokensRequest(messages=[message])
        assert (await stub.CountTokens(request, timeout=LIMIT_S)).prompt_tokens > 0
        text = inference_pb2.TokenizeTextRequest(text="Hi")
        assert (await stub.Tokenize(text, timeout=LIMIT_S)).token_ids


@pytest.mark.parametrize("kind", ["application/grpc-web+proto", "application/grpc-web-text"])
async def test_a_page_generates_over_grpc_web(edge, kind):
    message = hello(5).SerializeToString()
    body = b"\0" + len(message).to_bytes(4, "big") + message
    is_text = kind.endswith("text")
    async with httpx.AsyncClient(base_url=f"http://{edge}", timeout=LIMIT_S) as client:
        answer = await client.post(
            f"/{INFERENCE}/Generate",
            content=base64.b64encode(body) if is_text else body,
            headers={"content-type": kind, "accept": kind, "x-grpc-web": "1"},
        )
    data = answer.content
    if is_text:  # pieces of base64, each padded on its own
        data = b"".join(map(base64.b64decode, re.findall(rb"[^=]+={0,2}", data)))
    events, trailers = [], b""
    while data:
        end = 5 + int.from_bytes(data[1:5], "big")
        if data[0] == 0:
            events.append(generation_pb2.GenerationEvent.FromString(data[5:end]))
        else:
            trailers = data[5:end]
        data = data[end:]
    assert events[0].HasField("accepted")
    assert events[-1].finished.usage.completion_tokens == 5
    assert b"grpc-status:0" in trailers


async def test_channelz_is_there_for_who_reaches_the_process_itself(behind):
    inside = [f"127.0.0.1:{process.port}" for process in (behind.tokenizer, behind.worker)]
    for address in (behind.admin_address, *inside):
        code, listed, errors = await grpcurl(address, "list")
        assert code == 0, errors
        assert "grpc.channelz.v1.Channelz" in listed.split()
    servers = await asked(
        f"127.0.0.1:{behind.worker.port}", "grpc.channelz.v1.Channelz/GetServers", {}
    )
    assert servers["server"]


async def test_channelz_is_not_where_clients_come_past_the_edge(behind):
    address = f"127.0.0.1:{behind.gateway.port}"
    code, listed, errors = await grpcurl(address, "list")
    assert code == 0, errors
    assert "grpc.channelz.v1.Channelz" not in listed.split()
    code, _, errors = await grpcurl(address, "grpc.channelz.v1.Channelz/GetServers")
    assert code != 0


async def test_the_edge_does_not_route_channelz(edge):
    code, _, errors = await grpcurl(edge, "grpc.channelz.v1.Channelz/GetServers")
    assert code != 0
    assert "Unimplemented" in errors
