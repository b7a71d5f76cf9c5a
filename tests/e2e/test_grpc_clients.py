"""grpcurl by reflection and native stubs, through the edge's port."""

import json
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from grpc import aio
from hotline.v1 import (
    generation_pb2,
    inference_pb2,
    inference_pb2_grpc,
    model_pb2,
    model_pb2_grpc,
)

from services.runtime.channel import open_channel
from services.runtime.status import from_rpc_error

from .screens import png, screen

GRPCURL = Path(sys.executable).with_name("grpcurl")


def grpcurl(stack, *arguments: str) -> str:
    command = [GRPCURL, "-plaintext", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def documents(text: str) -> list[dict[str, object]]:
    """Concatenated JSON objects, one by one."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text.rstrip()):
        value, at = decoder.raw_decode(text, at + len(text[at:]) - len(text[at:].lstrip()))
        found.append(value)
    return found


def test_grpcurl_lists_and_describes_by_reflection(stack):
    listed = grpcurl(stack, stack.address, "list").split()
    assert {"hotline.v1.InferenceService", "grpc.health.v1.Health"} <= set(listed)
    shown = grpcurl(stack, stack.address, "describe", "hotline.v1.InferenceService")
    assert "rpc Generate" in shown


def test_grpcurl_streams_a_generation(stack):
    request = {
        "messages": [{"role": "ROLE_USER", "text": "你是谁？"}],
        "sampling": {"temperature": 0},
    }
    output = grpcurl(
        stack, "-d", json.dumps(request), stack.address, "hotline.v1.InferenceService/Generate"
    )
    events = documents(output)
    assert "accepted" in events[0]
    assert "started" in events[1]
    assert "finished" in events[-1]
    assert events[-1]["finished"]["reason"] == "FINISH_REASON_STOP"
    assert sum("finished" in event or "failed" in event for event in events) == 1
    sequences = [int(event["sequence"]) for event in events]
    assert sequences == sorted(set(sequences))


@pytest.fixture
async def channel(stack):
    async with open_channel(stack.address) as opened:
        yield opened


def message(text: str, *images: bytes):
    from hotline.v1 import conversation_pb2 as c

    parts = [c.Part(image=c.ImagePart(data=data)) for data in images] + [c.Part(text=text)]
    return c.Message(role=c.ROLE_USER, parts=c.PartList(parts=parts))


async def test_a_native_client_sends_raw_image_bytes_and_gets_a_parsed_action(channel):
    request = inference_pb2.GenerateRequest(
        generation_id="my-turn-1", messages=[message("点击红色按钮", png(screen()))]
    )
    request.sampling.temperature = 0
    request.render.split_reasoning = True
    events = [
        event
        async for event in inference_pb2_grpc.InferenceServiceStub(channel).Generate(
            request, timeout=60
        )
    ]
    assert events[0].accepted.generation_id == "my-turn-1"
    assert events[0].accepted.model == "autoglm-phone-tiny"
    [action] = [event.action for event in events if event.HasField("action")]
    assert action.name == "Tap"
    x, y = action.arguments["element"]
    assert (abs(x - 500) <= 60, abs(y - 750) <= 60) == (True, True)
    assert "".join(event.reasoning.text for event in events)
    answer = "".join(event.text.text for event in events)
    assert answer.startswith('do(action="Tap"')
    finished = events[-1].finished
    assert finished.usage.prompt_tokens == events[0].accepted.prompt_tokens
    assert finished.timings.prefill.ToMicroseconds() > 0


async def test_cancel_by_name_ends_the_stream_with_cancelled(channel, stack):
    stub = inference_pb2_grpc.InferenceServiceStub(channel)
    request = inference_pb2.GenerateRequest(generation_id="to-cancel", messages=[message("Hi")])
    request.sampling.ignore_eos = True
    events = []
    async for event in stub.Generate(request, timeout=60):
        events.append(event)
        if event.HasField("text") and not any(e.HasField("finished") for e in events):
            cancel = inference_pb2.CancelRequest(generation_id="to-cancel")
            await stub.Cancel(cancel, timeout=5)
    assert events[-1].finished.reason == generation_pb2.FINISH_REASON_CANCELLED
    again = await stub.Cancel(inference_pb2.CancelRequest(generation_id="to-cancel"), timeout=5)
    assert not again.cancelled
    assert stack.idle_within(5)


async def test_a_bad_native_request_is_a_status_with_error_info(channel):
    stub = inference_pb2_grpc.InferenceServiceStub(channel)
    request = inference_pb2.GenerateRequest(messages=[message("Hi")])
    request.sampling.temperature = 5
    with pytest.raises(aio.AioRpcError) as raised:
        await stub.Generate(request, timeout=10).read()
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    error = from_rpc_error(raised.value, "edge")
    assert error.metadata["field"] == "sampling.temperature"
    assert error.metadata["value"] == "5.0"


async def test_a_deadline_ends_with_the_text_so_far(channel):
    stub = inference_pb2_grpc.InferenceServiceStub(channel)
    request = inference_pb2.GenerateRequest(messages=[message("Hi")])
    request.sampling.ignore_eos = True
    events = [event async for event in stub.Generate(request, timeout=2)]
    assert events[-1].finished.reason in (
        generation_pb2.FINISH_REASON_TIME_LIMIT,
        generation_pb2.FINISH_REASON_LENGTH,
    )
    assert any(event.HasField("text") for event in events)


async def test_models_are_listed_with_their_aliases(channel):
    stub = model_pb2_grpc.ModelServiceStub(channel)
    [model] = (await stub.ListModels(model_pb2.ListModelsRequest(), timeout=5)).models
    assert (model.name, list(model.aliases)) == ("autoglm-phone-tiny", ["autoglm-phone-9b"])
    assert model.ready
    assert model.engine == "vllm"
