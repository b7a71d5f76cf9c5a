"""Render over gRPC."""

import asyncio
import base64
import hashlib
import json
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf import struct_pb2
from google.rpc import error_details_pb2, status_pb2
from hotline.v1 import conversation_pb2, tokenizer_pb2
from hotline.v1.conversation_pb2 import Message, Part, PartList
from PIL import Image
from tokenizer_kit import Encoded, Settings, Stub, user

from services.runtime.channel import open_channel
from services.runtime.lifecycle import Process
from services.runtime.status import DETAILS_KEY
from services.tokenizer import wire
from services.tokenizer.app import TokenizerApp
from services.tokenizer.model_folder import ModelFolder

SYSTEM, USER, ASSISTANT, TOOL = (
    conversation_pb2.ROLE_SYSTEM,
    conversation_pb2.ROLE_USER,
    conversation_pb2.ROLE_ASSISTANT,
    conversation_pb2.ROLE_TOOL,
)


def request(*messages: Message, **options: Any) -> tokenizer_pb2.RenderRequest:
    made = conversation_pb2.RenderOptions(**options)
    return tokenizer_pb2.RenderRequest(messages=messages, options=made)


def struct(**values: Any) -> struct_pb2.Struct:
    made = struct_pb2.Struct()
    made.update(values)
    return made


def error_info(error: grpc.aio.AioRpcError) -> error_details_pb2.ErrorInfo:
    details = dict(error.trailing_metadata() or ())[DETAILS_KEY]
    info = error_details_pb2.ErrorInfo()
    status_pb2.Status.FromString(details).details[0].Unpack(info)
    return info


async def refused(
    stub: Stub, asked: tokenizer_pb2.RenderRequest
) -> tuple[error_details_pb2.ErrorInfo, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Render(asked)
    return error_info(caught.value), caught.value.details() or ""


async def test_a_text_is_rendered_with_the_generation_prompt(
    stub: Stub, folder: ModelFolder
) -> None:
    response = await stub.Render(request(Message(role=SYSTEM, text="s"), user("你好")))
    text = folder.backend.decode(list(response.token_ids), skip_special_tokens=False)
    assert text == "[gMASK]<sop><|system|>\ns<|user|>\n你好<|assistant|>\n"
    assert not response.features
    assert not response.thinking_closed


async def test_an_image_is_placed_and_its_tensor_kept(stub: Stub, encoded: Encoded) -> None:
    data = encoded()
    response = await stub.Render(request(user(data, "what colour?")))
    (placement,) = response.features
    grid = placement.grid
    assert placement.length == grid.t * grid.h * grid.w // 4
    assert len(set(response.token_ids[placement.offset : placement.offset + placement.length])) == 1
    assert placement.media_digest == hashlib.sha256(data).digest()
    status = await stub.GetTokenizerStatus(tokenizer_pb2.GetTokenizerStatusRequest())
    assert status.feature_bytes >= placement.length * 4 * 3 * 14 * 14


async def test_case_9_a_picture_as_bytes_and_as_data_url_is_the_same_feature(
    stub: Stub, encoded: Encoded
) -> None:
    data = encoded()
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    as_bytes, as_url = [await stub.Render(request(user(part, "x"))) for part in (data, url)]
    assert as_bytes == as_url


async def test_case_10_another_picture_of_the_same_size_is_another_feature(
    stub: Stub, encoded: Encoded
) -> None:
    pictures = [encoded(Image.new("RGB", (60, 40), colour)) for colour in ("red", "blue")]
    first, second = [await stub.Render(request(user(data, "x"))) for data in pictures]
    assert first.token_ids == second.token_ids
    assert first.features[0].feature_digest != second.features[0].feature_digest


async def test_case_14_an_empty_assistant_turn_is_accepted(stub: Stub, folder: ModelFolder) -> None:
    turns = (user("a"), Message(role=ASSISTANT, text=""), Message(role=ASSISTANT), user("b"))
    response = await stub.Render(request(*turns))
    text = folder.backend.decode(list(response.token_ids), skip_special_tokens=False)
    assert text.count("<|assistant|>\n") == 3


async def test_case_28_an_image_of_8_mb_passes(stub: Stub, encoded: Encoded) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (1900, 1450, 3), dtype=np.uint8)
    data = encoded(Image.fromarray(noise), "PNG", compress_level=0)
    assert len(data) > 8_000_000
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    responses = [await stub.Render(request(user(part, "x"))) for part in (data, url)]
    assert responses[0].features == responses[1].features


@pytest.mark.parametrize(
    ("enable", "closed"),
    [
        pytest.param(None, False, id="habit"),
        pytest.param(True, False, id="on"),
        pytest.param(False, True, id="off"),
    ],
)
async def test_thinking_closed_says_that_the_prompt_ends_inside_the_answer(
    stub: Stub, enable: bool | None, closed: bool
) -> None:
    history = Message(role=ASSISTANT, text="<think>T</think>\n<answer>A")
    response = await stub.Render(request(user("a"), history, user("b"), enable_thinking=enable))
    assert response.thinking_closed is closed


def test_whole_numbers_in_variables_are_integers_again() -> None:
    given = struct(a=5, b=[1, 2.5], c={"d": None, "e": True, "f": "g"})
    variables = wire.conversation(request(user("x"), template_variables=given)).variables
    written = json.dumps(variables, sort_keys=True)
    assert written == '{"a": 5, "b": [1, 2.5], "c": {"d": null, "e": true, "f": "g"}}'


async def test_template_variables_reach_the_template(stub: Stub) -> None:
    by_variable = request(user("a"), template_variables=struct(enable_thinking=False, other=1.5))
    by_option = request(user("a"), enable_thinking=False)
    assert await stub.Render(by_variable) == await stub.Render(by_option)


@pytest.mark.parametrize(
    ("asked", "field", "words"),
    [
        pytest.param(request(), "messages", "1 to 1024", id="case-13-no-messages"),
        pytest.param(
            request(Message(text="x")), "messages[0].role", "system, user", id="case-13-no-role"
        ),
        pytest.param(
            request(Message(role=99, text="x")),  # type: ignore[arg-type]
            "messages[0].role",
            "99",
            id="case-13-unknown-role",
        ),
        pytest.param(
            request(user("a"), Message(role=USER, parts=PartList(parts=[Part(text="b"), Part()]))),
            "messages[1].content[1]",
            "a text, an image",
            id="case-13-part-without-kind",
        ),
        pytest.param(
            request(
                Message(role=USER, parts=PartList(parts=[Part(image=conversation_pb2.ImagePart())]))
            ),
            "messages[0].content[0]",
            "data URL",
            id="case-13-image-without-source",
        ),
        pytest.param(
            request(Message(role=USER, text="")), "messages", "some content", id="case-13-empty"
        ),
        pytest.param(
            request(*[user("x")] * 1025), "messages", "1025 items", id="too-many-messages"
        ),
        pytest.param(
            request(Message(role=USER, parts=PartList(parts=[Part(text="x")] * 257))),
            "messages[0].content",
            "0 to 256",
            id="too-many-parts",
        ),
        pytest.param(
            request(Message(role=USER, text="x" * 100_001)),
            "messages",
            "100000",
            id="too-much-text",
        ),
        pytest.param(
            request(Message(role=SYSTEM, parts=user(b"x").parts), user("a")),
            "messages[0].content[0]",
            "in a user message",
            id="image-in-a-system-message",
        ),
        pytest.param(
            request(user("a"), Message(role=ASSISTANT, parts=user(b"x").parts)),
            "messages[1].content[0]",
            "in a user message",
            id="image-in-an-assistant-message",
        ),
        pytest.param(
            request(user(*[b"x"] * 11)), "messages", "at most 10 images", id="too-many-images"
        ),
        pytest.param(
            request(user("a"), Message(role=TOOL, text="x")),
            "messages[1].role",
            "template has no tools",
            id="case-37-tool-message",
        ),
        pytest.param(
            request(user("a"), tools=[struct(type="function")]),
            "tools",
            "template has no tools",
            id="case-37-tools",
        ),
        pytest.param(
            request(
                user("a"),
                Message(role=ASSISTANT, tool_calls=[conversation_pb2.ToolCall(id="1", name="f")]),
            ),
            "messages[1].tool_calls",
            "template has no tools",
            id="case-37-tool-calls",
        ),
        pytest.param(
            request(Message(role=USER, text="x", tool_call_id="1")),
            "messages[0].tool_call_id",
            "in a tool message",
            id="tool-call-id-elsewhere",
        ),
        pytest.param(
            request(Message(role=USER, text="x", tool_call_id="1" * 129)),
            "messages[0].tool_call_id",
            "128 bytes",
            id="long-tool-call-id",
        ),
        pytest.param(
            request(user("a"), template_variables=struct(messages=[])),
            "template_variables.messages",
            "reserved",
            id="reserved-variable",
        ),
        pytest.param(
            request(user("a"), template_variables=struct(add_generation_prompt=False)),
            "template_variables.add_generation_prompt",
            "reserved",
            id="another-reserved-variable",
        ),
        pytest.param(
            request(user("a"), template_variables=struct(self=1)),
            "template_variables.self",
            "reserved",
            id="jinja-s-own-argument",
        ),
    ],
)
async def test_a_conversation_that_cannot_be_asked_is_refused_by_its_path(
    stub: Stub, asked: tokenizer_pb2.RenderRequest, field: str, words: str
) -> None:
    info, message = await refused(stub, asked)
    assert (info.reason, info.metadata["field"]) == ("INVALID_ARGUMENT", field)
    assert words in message


@pytest.mark.parametrize(
    ("part", "words"),
    [
        pytest.param(b"<html></html>", "no PNG, JPEG", id="case-7-html"),
        pytest.param("data:image/png;base64", "no comma", id="case-7-no-comma"),
        pytest.param("data:image/png;base64,A", "base64", id="case-7-bad-base64"),
    ],
)
async def test_case_7_a_bad_image_is_refused_by_its_path(
    stub: Stub, part: str | bytes, words: str
) -> None:
    info, message = await refused(stub, request(user("a"), user(part, "b")))
    assert (info.reason, info.metadata["field"]) == ("INVALID_MEDIA", "messages[1].content[0]")
    assert words in message


@pytest.mark.parametrize("url", ["http://127.0.0.1/x.png", "file:///etc/passwd"])
async def test_case_11_a_url_is_not_fetched(stub: Stub, url: str) -> None:
    part = Part(image=conversation_pb2.ImagePart(url=url))
    asked = request(Message(role=USER, parts=PartList(parts=[part])))
    info, message = await refused(stub, asked)
    assert info.reason == "INVALID_MEDIA"
    assert "the server fetches nothing" in message


async def test_case_5_an_aspect_ratio_above_200_is_refused(stub: Stub, encoded: Encoded) -> None:
    info, message = await refused(stub, request(user(encoded(Image.new("L", (201, 1))), "x")))
    assert info.reason == "INVALID_MEDIA"
    assert "at most 200 times" in message


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(Part(audio=conversation_pb2.AudioPart(data=b"RIFF")), id="sound"),
        pytest.param(
            Part(image=conversation_pb2.ImagePart(media_digest=b"x" * 32)), id="media-digest"
        ),
    ],
)
async def test_what_this_version_does_not_build_is_unimplemented(stub: Stub, part: Part) -> None:
    info, message = await refused(stub, request(Message(role=USER, parts=PartList(parts=[part]))))
    assert info.reason == "UNIMPLEMENTED"
    assert message.startswith("messages[0].content[0]")


async def test_the_status_tells_model_and_limits(stub: Stub, folder: ModelFolder) -> None:
    status = await stub.GetTokenizerStatus(tokenizer_pb2.GetTokenizerStatusRequest())
    assert (status.model, status.vocabulary_size) == ("tiny", folder.vocabulary_size)
    assert (status.running, status.waiting) == (0, 0)


async def test_renders_beyond_the_waiting_room_are_overloaded(
    tokenizer_settings: Settings, encoded: Encoded
) -> None:
    settings = tokenizer_settings(max_running=1, max_waiting=1, render_threads=1)
    process = Process(TokenizerApp(settings), settings)
    await process.start()
    try:
        async with open_channel(f"127.0.0.1:{process.port}") as channel:
            from hotline.v1 import tokenizer_pb2_grpc

            stub: Stub = tokenizer_pb2_grpc.TokenizerServiceStub(channel)
            data = encoded(Image.new("RGB", (1080, 2400)))
            outcomes = await asyncio.gather(
                *(stub.Render(request(user(data))) for _ in range(6)), return_exceptions=True
            )
            errors = [each for each in outcomes if isinstance(each, grpc.aio.AioRpcError)]
            assert len(errors) == 4
            assert {error_info(error).reason for error in errors} == {"OVERLOADED"}
            await stub.Render(request(user("still serving")))
    finally:
        await process.stop()
