"""Tools through the tokenizer's RPCs: a process whose model has them, with a parser and without."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import grpc
import pytest
from hotline.v1 import conversation_pb2, tokenizer_pb2, tokenizer_pb2_grpc
from tokenizer_kit import Settings, Stub, user
from tool_model import TAP, TWO_CALLS, WEATHER, tool_model

from services.runtime.channel import open_channel
from services.runtime.lifecycle import Process
from services.tokenizer.app import TokenizerApp
from services.tokenizer.model_folder import ModelFolder
from services.tokenizer.output_text import OutputText

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what vLLM imports
Input = tokenizer_pb2.DetokeniseInput


@pytest.fixture(scope="module")
def settings(tokenizer_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    path = tool_model(tmp_path_factory.mktemp("tools"))
    return lambda **values: tokenizer_settings(model_path=path, **values)


@pytest.fixture(scope="module")
async def tools(settings: Settings) -> AsyncGenerator[Stub, None]:
    made = settings(tool_parser="hermes")
    process = Process(TokenizerApp(made), made)
    await process.start()
    async with open_channel(f"127.0.0.1:{process.port}") as channel:
        yield tokenizer_pb2_grpc.TokenizerServiceStub(channel)
    await process.stop()


def options(*tools: dict[str, Any], **fields: Any) -> conversation_pb2.RenderOptions:
    made = conversation_pb2.RenderOptions(**fields)
    for tool in tools:
        made.tools.add().update(tool)
    return made


async def prompt(stub: Stub, made: conversation_pb2.RenderOptions) -> str:
    rendered = await stub.Render(
        tokenizer_pb2.RenderRequest(messages=[user("Hi")], options=made), timeout=10
    )
    decoded = await stub.DecodeTokens(
        tokenizer_pb2.DecodeTokensRequest(token_ids=rendered.token_ids), timeout=10
    )
    text: str = decoded.text
    return text


async def test_the_template_is_given_tools_in_openais_order_though_protobuf_has_none(
    tools: Stub,
) -> None:
    text = await prompt(tools, options(WEATHER, TAP))
    shown = {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "What the weather will be.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        },
    }
    assert json.dumps(shown) in text
    assert '"additionalProperties": false' in text


async def test_the_choice_none_hides_them(tools: Stub) -> None:
    none = conversation_pb2.ToolChoice(none=True)
    hidden = await prompt(tools, options(WEATHER, tool_choice=none))
    assert hidden == await prompt(tools, options())


async def test_a_process_without_a_parser_refuses_tools_that_are_not_hidden(
    settings: Settings,
) -> None:
    made = settings()
    process = Process(TokenizerApp(made), made)
    await process.start()
    try:
        async with open_channel(f"127.0.0.1:{process.port}") as channel:
            stub = tokenizer_pb2_grpc.TokenizerServiceStub(channel)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await prompt(stub, options(WEATHER))
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "tool_parser" in str(refused.value.details())
            none = conversation_pb2.ToolChoice(none=True)
            assert "get_weather" not in await prompt(stub, options(WEATHER, tool_choice=none))
    finally:
        await process.stop()


def opening(handle: int, *tools: dict[str, Any], **fields: Any) -> Input:
    made = tokenizer_pb2.DetokeniseOpen(**fields)
    for tool in tools:
        made.tools.add().update(tool)
    return Input(handle=handle, open=made)


def tokens(folder: ModelFolder, handle: int, text: str) -> Input:
    ids = folder.backend.encode(text, add_special_tokens=False).ids
    return Input(handle=handle, tokens=tokenizer_pb2.DetokeniseTokens(token_ids=ids, last=True))


async def told(stub: Stub, *inputs: Input) -> dict[int, tuple[str, list[tuple[str, Any]]]]:
    """What became of each handle: its text, and the name and arguments of its calls."""
    call = stub.Detokenise()
    texts: dict[int, str] = {}
    calls: dict[tuple[int, int], list[str]] = {}
    ended: set[int] = set()
    async with asyncio.timeout(20):
        await call.write(tokenizer_pb2.DetokeniseRequest(inputs=inputs))
        while ended < {item.handle for item in inputs}:
            response = await call.read()
            assert isinstance(response, tokenizer_pb2.DetokeniseResponse)
            for output in response.outputs:
                assert not output.error
                texts[output.handle] = texts.get(output.handle, "") + output.text
                for piece in output.tool_calls:
                    made = calls.setdefault((output.handle, piece.index), [piece.name, ""])
                    made[1] += piece.arguments
                ended |= {output.handle} if output.finished else set()
    call.cancel()
    return {
        handle: (
            text,
            [(name, json.loads(made)) for (of, _), (name, made) in calls.items() if of == handle],
        )
        for handle, text in texts.items()
    }


async def test_the_calls_of_one_text_are_cut_out_beside_the_text_of_another(
    tools: Stub, folder: ModelFolder
) -> None:
    answers = await told(
        tools,
        opening(1, WEATHER, TAP),
        opening(2),
        opening(3, WEATHER, tool_choice=conversation_pb2.ToolChoice(none=True)),
        opening(4, TAP, tool_choice=conversation_pb2.ToolChoice(function="tap")),
        opening(5, TAP, tool_choice=conversation_pb2.ToolChoice(required=True)),
        *(tokens(folder, handle, TWO_CALLS) for handle in (1, 2, 3)),
        tokens(folder, 4, '{"on": false}'),
        tokens(folder, 5, '[{"name": "tap", "parameters": {"on": false}}]'),
    )
    calls = [("get_weather", {"city": "Köln", "days": 3}), ("tap", {"on": True})]
    assert answers == {
        1: ("Well. ", calls),
        2: (TWO_CALLS, []),
        3: (TWO_CALLS, []),
        4: ("", [("tap", {"on": False})]),
        5: ("", [("tap", {"on": False})]),
    }


async def test_texts_with_tools_are_worked_on_beside_the_loop_and_others_on_it(
    tools: Stub, folder: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_loop: list[bool] = []
    push = OutputText.push

    def noted(self: OutputText, *arguments: Any) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            on_loop.append(False)
        else:
            on_loop.append(True)
        return push(self, *arguments)

    monkeypatch.setattr(OutputText, "push", noted)
    await told(tools, opening(1), tokens(folder, 1, "Hi"))
    assert on_loop == [True]
    await told(tools, opening(1, TAP), tokens(folder, 1, "Hi"))
    assert on_loop == [True, False]
