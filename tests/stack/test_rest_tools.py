"""Tools through a real Envoy, gateway and tokenizer: the simulator says what a model with tools would."""

import asyncio
import json

import httpx
import openai
import pytest
from hotline.v1 import conversation_pb2, generation_pb2, inference_pb2
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from rest_stack import MODEL_NAME, rest_stack
from sim_stack import LIMIT_S
from tokenizers import Tokenizer
from tool_model import MODEL, TAP, TWO_CALLS, WEATHER, tool_model

from services.worker import sim_tokens

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what vLLM imports
CHAT = "/v1/chat/completions"
TOOLS = [WEATHER, TAP]
CALLS = [("get_weather", {"city": "Köln", "days": 3}), ("tap", {"on": True})]


@pytest.fixture(scope="module")
async def stack(tmp_path_factory):
    model = tool_model(tmp_path_factory.mktemp("model"))
    worker = {"model_path": model, "max_model_len": 1024, "sim_output_tokens": 1000}
    tokenizer = {"model_path": model, "tool_parser": "hermes"}
    async with rest_stack(tmp_path_factory.mktemp("edge"), worker, tokenizer) as running:
        yield running


@pytest.fixture(scope="module")
async def http(stack):
    async with httpx.AsyncClient(base_url=stack.url, timeout=LIMIT_S) as client:
        yield client


@pytest.fixture
def says(monkeypatch):
    """Makes the simulator say a text, and then end."""
    backend = Tokenizer.from_file(str(MODEL / "tokenizer.json"))

    def say(text: str) -> None:
        ids = backend.encode(text, add_special_tokens=False).ids
        ids.append(backend.token_to_id("<|user|>"))

        def token(trace_key: str, choice_index: int, position: int, allowed: range) -> int:
            return ids[min(position, len(ids) - 1)]

        monkeypatch.setattr(sim_tokens, "trace_token", token)

    say(TWO_CALLS)
    return say


def body(**fields: object) -> dict[str, object]:
    messages = [{"role": "user", "content": "Hi"}]
    return {"model": MODEL_NAME, "messages": messages, "tools": TOOLS, **fields}


async def whole(http, **fields):
    answer = await http.post(CHAT, json=body(**fields))
    assert answer.status_code == 200, answer.text
    ChatCompletion.model_validate(answer.json(), strict=True)
    return answer.json()


async def streamed(http, **fields) -> list[dict]:
    chunks = []
    async with http.stream("POST", CHAT, json=body(stream=True, **fields)) as answer:
        assert answer.status_code == 200
        lines = [line async for line in answer.aiter_lines() if line]
    assert lines.pop() == "data: [DONE]"
    for line in lines:
        chunk = json.loads(line.removeprefix("data: "))
        ChatCompletionChunk.model_validate(chunk, strict=True)
        chunks.append(chunk)
    return chunks


async def refused(http, **fields) -> dict:
    answer = await http.post(CHAT, json=body(**fields))
    assert answer.status_code == 400, answer.text
    return answer.json()["error"]


async def test_a_whole_answer_has_the_calls_and_what_was_said_before_them(http, says):
    (choice,) = (await whole(http))["choices"]
    assert choice["finish_reason"] == "tool_calls"
    message = choice["message"]
    assert message["content"] == "Well. "
    assert [call["type"] for call in message["tool_calls"]] == ["function", "function"]
    assert len({call["id"] for call in message["tool_calls"]}) == 2
    functions = [call["function"] for call in message["tool_calls"]]
    assert [(one["name"], json.loads(one["arguments"])) for one in functions] == CALLS


async def test_a_stream_has_the_id_type_and_name_once_and_the_arguments_in_pieces(http, says):
    chunks = await streamed(http)
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "Well. "
    pieces = [piece for delta in deltas for piece in delta.get("tool_calls", ())]
    for index, (name, arguments) in enumerate(CALLS):
        first, *later = [piece for piece in pieces if piece["index"] == index]
        assert first["id"]
        assert (first["type"], first["function"]["name"]) == ("function", name)
        assert not any({"id", "type"} & piece.keys() for piece in later)
        text = "".join(piece["function"]["arguments"] for piece in (first, *later))
        assert json.loads(text) == arguments
    reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
    assert reasons[-1] == "tool_calls"
    assert set(reasons[:-1]) == {None}


async def test_a_call_without_text_before_it_has_its_role_and_empty_content(http, says):
    says(TWO_CALLS.removeprefix("Well. "))
    (choice,) = (await whole(http))["choices"]
    assert choice["message"]["content"] == ""
    deltas = [choice["delta"] for chunk in await streamed(http) for choice in chunk["choices"]]
    assert [delta.get("role") for delta in deltas].count("assistant") == 1
    assert deltas[0]["role"] == "assistant"


async def test_openais_streaming_helper_gathers_the_calls(stack, says):
    async with (
        stack.client() as client,
        client.chat.completions.stream(
            model=MODEL_NAME, messages=[{"role": "user", "content": "Hi"}], tools=TOOLS
        ) as stream,
    ):
        kinds = [event.type async for event in stream]
        final = await stream.get_final_completion()
    assert kinds.count("tool_calls.function.arguments.done") == 2
    calls = final.choices[0].message.tool_calls
    assert [(one.function.name, json.loads(one.function.arguments)) for one in calls] == CALLS


async def test_each_choice_has_its_own_calls(http, says):
    choices = (await whole(http, n=3))["choices"]
    assert [len(choice["message"]["tool_calls"]) for choice in choices] == [2, 2, 2]
    ids = {call["id"] for choice in choices for call in choice["message"]["tool_calls"]}
    assert len(ids) == 6


async def test_a_length_inside_a_call_is_told_as_length(http, says):
    (choice,) = (await whole(http, max_tokens=45))["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "get_weather"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("It is sunny.", id="no call"),
        pytest.param("See <tool_call>\nwhat it is</tool_call>.", id="no JSON"),
    ],
)
async def test_what_is_no_call_is_text_and_ends_with_stop(http, says, text):
    says(text)
    (choice,) = (await whole(http))["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["message"] == {"role": "assistant", "content": text}


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"tools": None}, id="no tools"),
        pytest.param({"tool_choice": "none"}, id="none"),
    ],
)
async def test_without_tools_nothing_is_a_call(http, says, fields):
    (choice,) = (await whole(http, **fields))["choices"]
    assert choice["message"] == {"role": "assistant", "content": TWO_CALLS}
    assert choice["finish_reason"] == "stop"


async def rendered(http, **fields) -> str:
    """The prompt."""
    ids = await http.post("/v1/tokenize", json=body(**fields))
    assert ids.status_code == 200, ids.text
    text = await http.post("/v1/detokenize", json={"tokens": ids.json()["tokens"]})
    prompt: str = text.json()["prompt"]
    return prompt


async def test_the_template_sees_the_tools_in_openais_order_unless_the_choice_is_none(http):
    prompt = await rendered(http)
    assert '{"type": "function", "function": {"name": "get_weather", "description": ' in prompt
    assert "get_weather" not in await rendered(http, tool_choice="none")
    assert prompt == await rendered(http, tool_choice="auto")


async def test_the_template_sees_the_calls_of_the_past_and_their_answers(http):
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "tap", "arguments": '{"on": true, "at": [1, 2.5]}'},
    }
    history = [
        {"role": "user", "content": "Tap"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "tapped"},
    ]
    prompt = await rendered(http, messages=history)
    assert '{"name": "tap", "arguments": {"at": [1, 2.5], "on": true}}' in prompt
    assert "tapped (call_1)" in prompt


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        pytest.param({"tools": None, "tool_choice": "auto"}, "tool_choice", "tools", id="no tools"),
        pytest.param({"tool_choice": "any"}, "tool_choice", "required", id="no such choice"),
        pytest.param(
            {"tool_choice": {"type": "function", "function": {"name": "jump"}}},
            "tool_choice",
            "one of tools",
            id="no such function",
        ),
        pytest.param({"tools": [TAP, TAP]}, "tools[1].function.name", "unique", id="twice"),
        pytest.param(
            {"tool_choice": "required", "guided_regex": "a"},
            "tool_choice",
            "guided_regex",
            id="two",
        ),
    ],
)
async def test_what_does_not_fit_is_400_by_its_name(http, fields, param, words):
    error = await refused(http, **fields)
    assert error["param"] == param
    assert words in error["message"]


@pytest.mark.parametrize(
    "choice",
    ["required", {"type": "function", "function": {"name": "tap"}}],
    ids=["required", "named"],
)
async def test_a_forced_call_needs_an_engine_with_grammars(http, choice):
    answer = await http.post(CHAT, json=body(tool_choice=choice))
    assert answer.status_code == 501, answer.text


async def test_the_client_gets_bad_request_for_bad_tools(stack):
    async with stack.client() as client:
        with pytest.raises(openai.BadRequestError) as raised:
            await client.chat.completions.create(
                model=MODEL_NAME,
                messages=[{"role": "user", "content": "Hi"}],
                tools=[{"type": "function", "function": {"name": "no spaces"}}],
            )
    assert raised.value.param == "tools[0].function.name"


def native(**render: object) -> inference_pb2.GenerateRequest:
    message = conversation_pb2.Message(role=conversation_pb2.ROLE_USER, text="Hi")
    request = inference_pb2.GenerateRequest(messages=[message])
    for tool in TOOLS:
        request.render.tools.add().update(tool)
    request.render.MergeFrom(conversation_pb2.RenderOptions(**render))
    return request


async def test_native_clients_get_the_calls_as_events(stack, says):
    async with asyncio.timeout(LIMIT_S):
        events = [event async for event in stack.behind.inference.Generate(native())]
    calls = [event.tool_call for event in events if event.WhichOneof("event") == "tool_call"]
    for index, (name, arguments) in enumerate(CALLS):
        pieces = [call for call in calls if call.index == index]
        assert [piece.name for piece in pieces if piece.name] == [name]
        assert json.loads("".join(piece.arguments for piece in pieces)) == arguments
    assert events[-1].finished.reason == generation_pb2.FINISH_REASON_TOOL_CALLS


async def test_text_goes_on_for_others_while_calls_are_parsed(http, says):
    with_tools = asyncio.gather(*(whole(http) for _ in range(8)))
    without = asyncio.gather(*(whole(http, tools=None) for _ in range(8)))
    for answer in await with_tools:
        assert len(answer["choices"][0]["message"]["tool_calls"]) == 2
    for answer in await without:
        assert answer["choices"][0]["message"]["content"] == TWO_CALLS
