"""Tools on the real engine: `hotline up` with a model whose template has them; a grammar forces the calls."""

import asyncio
import json
from pathlib import Path
from typing import Any

import openai
import pytest
from engine_worker import nothing_left, shared_memory
from openai.types.chat import ChatCompletion
from tool_model import TAP, WEATHER, tool_model
from up_process import Up, assert_gone, running_up

CONFIGURATION = Path(__file__).resolve().parents[2] / "deploy" / "config" / "tiny-cpu.yaml"
NO_SCHEMA = {"type": "function", "function": {"name": "tap", "parameters": {"type": "?"}}}
TAP_NAMED = {"type": "function", "function": {"name": "tap"}}


def configuration(folder: Path) -> Path:
    """The default one, with tools."""
    text = CONFIGURATION.read_text("utf-8")
    text = text.replace("../models/autoglm-phone-tiny", str(tool_model(folder)))
    text = text.replace("\ntokenizer:\n", "\ntokenizer:\n  tool_parser: hermes\n")
    file = folder / "tools.yaml"
    file.write_text(text, "utf-8")
    return file


def asked(client: openai.OpenAI, **fields: Any) -> ChatCompletion:
    answer = client.chat.completions.create(
        model="autoglm-phone-9b",
        messages=[{"role": "user", "content": "点击红色按钮"}],
        temperature=0,
        max_tokens=200,
        **fields,
    )
    assert isinstance(answer, ChatCompletion)
    return answer


def check_forced_calls(client: openai.OpenAI) -> None:
    for choice in ("required", TAP_NAMED):
        answer = asked(client, tools=[TAP], tool_choice=choice, parallel_tool_calls=False)
        (made,) = answer.choices
        assert (made.finish_reason, made.message.content) == ("tool_calls", "")
        assert made.message.tool_calls is not None
        (call,) = made.message.tool_calls
        assert call.type == "function"
        assert call.function.name == "tap"
        assert json.loads(call.function.arguments).keys() == {"on"}


def check_streamed_call(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="autoglm-phone-9b",
        messages=[{"role": "user", "content": "点击红色按钮"}],
        tools=[TAP],  # type: ignore[list-item]
        tool_choice="required",
        parallel_tool_calls=False,
        temperature=0,
    ) as stream:
        final = stream.get_final_completion()
    (call,) = final.choices[0].message.tool_calls or ()
    assert json.loads(call.function.arguments).keys() == {"on"}
    assert final.choices[0].finish_reason == "tool_calls"


def check_others(client: openai.OpenAI) -> None:
    answer = asked(client, tools=[WEATHER, TAP])
    assert answer.choices[0].finish_reason in ("stop", "length", "tool_calls")
    with pytest.raises(openai.BadRequestError) as raised:
        asked(client, tools=[NO_SCHEMA], tool_choice=TAP_NAMED)
    assert raised.value.param == "tools"
    assert client.models.list().data


@pytest.mark.slow
@pytest.mark.timeout(280)
async def test_required_and_named_calls_are_forced_by_the_real_engines_grammar(tmp_path: Path):
    before = shared_memory()

    def check(up: Up) -> None:
        url = f"{up.url}/v1"
        with openai.OpenAI(base_url=url, api_key="EMPTY", max_retries=0, timeout=60) as client:
            check_forced_calls(client)
            check_streamed_call(client)
            check_others(client)

    def run() -> None:
        with running_up("--config", str(configuration(tmp_path)), "--port", "0") as up:
            up.until(lambda line: line.startswith("Model service is ready!"), 200)
            processes = up.descendants()
            check(up)
            up.process.terminate()
            assert up.until_end() == 0
            assert_gone(processes, 10)

    await asyncio.to_thread(run)
    await nothing_left(before, tmp_path)
