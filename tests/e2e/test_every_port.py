"""Malformed requests to every port, internal ones too; then a good one to each."""

import socket

import grpc
import httpx
import pytest
from hotline.v1 import (
    conversation_pb2,
    feature_pb2,
    tokenizer_pb2,
    tokenizer_pb2_grpc,
    worker_pb2,
    worker_pb2_grpc,
)

NOISE = [
    pytest.param(b"\x00\xff" * 2000, id="noise"),
    pytest.param(b"GET / HTTP/1.1\r\nContent-Length: -5\r\n\r\n", id="bad HTTP/1.1"),
    pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 64, id="bad HTTP/2"),
    pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", id="TLS hello"),
]
INTERNAL = ["gateway", "tokenizer-0", "worker-0"]


def send(stack, name: str, data: bytes) -> None:
    """Raw bytes, then whatever the server says until it closes."""
    if name == "edge":
        peer = socket.create_connection(("127.0.0.1", stack.port), timeout=10)
    else:
        peer = socket.socket(socket.AF_UNIX)
        peer.settimeout(10)
        peer.connect(stack.socket(name).removeprefix("unix:"))
    with peer:
        peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
        try:
            while peer.recv(65536):
                pass
        except ConnectionResetError:
            pass


def answers(stack) -> bool:
    body = {
        "model": "autoglm-phone-tiny",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 3,
    }
    url = f"{stack.base_url}/chat/completions"
    return httpx.post(url, json=body, timeout=60, trust_env=False).status_code == 200


@pytest.mark.parametrize("name", ["edge", *INTERNAL])
@pytest.mark.parametrize("data", NOISE)
def test_noise_on_a_port_hurts_nobody(stack, name, data):
    send(stack, name, data)
    assert answers(stack)


METHODS = {
    "gateway": "/hotline.v1.InferenceService/Generate",
    "tokenizer-0": "/hotline.v1.TokenizerService/Render",
    "worker-0": "/hotline.v1.WorkerService/Generate",
}


@pytest.mark.parametrize("name", INTERNAL)
def test_bytes_that_are_no_message_are_a_status(stack, name):
    with grpc.insecure_channel(stack.socket(name)) as channel:
        call = channel.unary_stream(METHODS[name])
        with pytest.raises(grpc.RpcError) as raised:
            list(call(b"\xff\xff\xff\xff", timeout=10))
    assert raised.value.code() in (
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INVALID_ARGUMENT,
    )
    assert answers(stack)


@pytest.mark.parametrize("name", INTERNAL)
def test_an_unknown_method_is_unimplemented(stack, name):
    with (
        grpc.insecure_channel(stack.socket(name)) as channel,
        pytest.raises(grpc.RpcError) as raised,
    ):
        channel.unary_unary("/hotline.v1.Nothing/Nothing")(b"", timeout=10)
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


def worker_request(**fields: object) -> worker_pb2.WorkerGenerateRequest:
    base: dict[str, object] = {"generation_id": "direct", "prompt_token_ids": [1, 2, 3]}
    return worker_pb2.WorkerGenerateRequest(**{**base, **fields})


GRID = feature_pb2.PatchGrid(t=1, h=4, w=4)
BAD_FOR_THE_WORKER = [
    pytest.param(worker_request(prompt_token_ids=[]), id="empty prompt"),
    pytest.param(worker_request(prompt_token_ids=[10**9]), id="id out of the vocabulary"),
    pytest.param(worker_request(prompt_token_ids=[1] * 100_000), id="prompt too long"),
    pytest.param(worker_request(generation_id=""), id="no id"),
    pytest.param(worker_request(generation_id="a b"), id="odd id"),
    pytest.param(
        worker_request(
            features=[
                feature_pb2.FeaturePlacement(
                    feature_digest=b"x" * 32, modality=1, offset=1, length=500, grid=GRID
                )
            ]
        ),
        id="placeholder beyond the prompt",
    ),
    pytest.param(worker_request(sampling={"temperature": float("nan")}), id="NaN"),
    pytest.param(worker_request(sampling={"stop": ["x"]}), id="stop string"),
]


@pytest.mark.parametrize("request_", BAD_FOR_THE_WORKER)
def test_case_44_the_worker_refuses_and_its_engine_lives(stack, request_):
    with grpc.insecure_channel(stack.socket("worker-0")) as channel:
        stub = worker_pb2_grpc.WorkerServiceStub(channel)
        with pytest.raises(grpc.RpcError) as raised:
            list(stub.Generate(request_, timeout=10))
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert answers(stack)


def test_a_digest_that_nobody_sent_is_asked_for(stack):
    with grpc.insecure_channel(stack.socket("tokenizer-0")) as channel:
        stub = tokenizer_pb2_grpc.TokenizerServiceStub(channel)
        request = tokenizer_pb2.PushFeaturesRequest(feature_digests=[b"n" * 32], worker="worker-0")
        with pytest.raises(grpc.RpcError) as raised:
            stub.PushFeatures(request, timeout=10)
    assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION


def test_good_requests_to_the_internal_ports_are_answered(stack):
    with (
        grpc.insecure_channel(stack.socket("tokenizer-0")) as tokenizer,
        grpc.insecure_channel(stack.socket("worker-0")) as worker,
    ):
        hello = conversation_pb2.Message(role=conversation_pb2.ROLE_USER, text="Hi")
        rendered = tokenizer_pb2_grpc.TokenizerServiceStub(tokenizer).Render(
            tokenizer_pb2.RenderRequest(messages=[hello]), timeout=10
        )
        request = worker_request(prompt_token_ids=rendered.token_ids, sampling={"max_tokens": 3})
        events = list(worker_pb2_grpc.WorkerServiceStub(worker).Generate(request, timeout=30))
    assert events[0].started.prompt_tokens == len(rendered.token_ids)
    assert events[-1].HasField("finished")
