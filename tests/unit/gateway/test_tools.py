"""`tools` and `tool_choice`: what is let through, what is refused by its path, and the grammar of a forced call."""

import json
from typing import Any

import msgspec
import pytest
from google.protobuf import struct_pb2
from hotline.v1 import conversation_pb2, inference_pb2
from tool_model import TAP, WEATHER

from services.gateway.caller import Caller
from services.gateway.forced_tools import forced_schema
from services.gateway.json_body import parse
from services.gateway.openai_request import ChatRequest
from services.gateway.openai_wire import generation_request
from services.gateway.tools import MAX_TOOLS, ToolChoice, ToolChoices, Tools
from services.gateway.wire import generation_request as native_request
from services.runtime.errors import InvalidArgumentError

HI = {"messages": [{"role": "user", "content": "Hi"}]}
FORCED = {"type": "function", "function": {"name": "tap"}}


def tool(**function: object) -> dict[str, object]:
    return {"type": "function", "function": {"name": "f", **function}}


def generation(**fields: object) -> Any:
    chat = parse(json.dumps(HI | fields).encode(), ChatRequest)
    return generation_request(chat, "g", "m", Caller("o"), 60.0)


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(WEATHER, id="as usual"),
        pytest.param(tool(), id="only a name"),
        pytest.param(tool(parameters=None, description=None, strict=True), id="nulls and extras"),
        pytest.param(tool(name="a-Z_9" + "x" * 59), id="longest name"),
    ],
)
def test_a_tool_passes_as_it_is(made):
    assert Tools().read("tools", raw([made])) == [made]


@pytest.mark.parametrize(
    ("made", "field"),
    [
        pytest.param({**tool(), "type": "retrieval"}, "type", id="another type"),
        pytest.param({"function": {"name": "f"}}, "type", id="no type"),
        pytest.param({"type": "function"}, "function", id="no function"),
        pytest.param({"type": "function", "function": "f"}, "function", id="a name alone"),
        pytest.param(tool(name=None), "function.name", id="no name"),
        pytest.param(tool(name=""), "function.name", id="empty name"),
        pytest.param(tool(name="a b"), "function.name", id="a space"),
        pytest.param(tool(name="é"), "function.name", id="no ASCII"),
        pytest.param(tool(name="x" * 65), "function.name", id="a long name"),
        pytest.param(tool(name="f\n"), "function.name", id="a newline at the end"),
        pytest.param(tool(description=5), "function.description", id="no description"),
        pytest.param(tool(parameters=[]), "function.parameters", id="a list of parameters"),
    ],
)
def test_what_is_no_tool_is_refused_by_its_path(made, field):
    with pytest.raises(InvalidArgumentError) as refused:
        Tools().read("tools", raw([TAP, made]))
    assert refused.value.field == f"tools[1].{field}"


def test_names_are_unique_and_tools_are_counted():
    with pytest.raises(InvalidArgumentError, match="names are unique"):
        Tools().read("tools", raw([TAP, WEATHER, TAP]))
    many = [tool(name=f"f{number}") for number in range(MAX_TOOLS + 1)]
    assert len(Tools().read("tools", raw(many[1:]))) == MAX_TOOLS
    with pytest.raises(InvalidArgumentError, match="at most 128 tools"):
        Tools().read("tools", raw(many))


@pytest.mark.parametrize(
    ("given", "kind"),
    [("auto", "automatic"), ("none", "none"), ("required", "required"), (FORCED, "function")],
)
def test_a_choice_reaches_the_tokenizer(given, kind):
    request = generation(tools=[TAP], tool_choice=given)
    assert request.render_options.tool_choice.WhichOneof("choice") == kind
    assert (request.tool_use is None) == (kind == "none")


@pytest.mark.parametrize(
    "given",
    ["any", "", 5, [], {"type": "function"}, {"type": "tool", "function": {"name": "f"}}],
    ids=str,
)
def test_what_is_no_choice_is_refused(given):
    with pytest.raises(InvalidArgumentError) as refused:
        ToolChoices().read("tool_choice", raw(given))
    assert refused.value.field == "tool_choice"


def test_without_tools_nothing_can_be_chosen_and_nothing_is_called():
    assert generation(tools=[]).tool_use is None
    assert generation(tool_choice="none").tool_use is None
    with pytest.raises(InvalidArgumentError, match="absent or none where tools is absent"):
        generation(tool_choice="auto")


def schema(**fields: object) -> Any:
    sampling = generation(**fields).sampling
    if not sampling.HasField("structured_output"):
        return None
    return json.loads(sampling.structured_output.json_schema)


def test_only_a_forced_call_has_a_grammar():
    for choice in ("auto", "none", None):
        assert schema(tools=[TAP], tool_choice=choice) is None
    assert schema(tools=[WEATHER, TAP], tool_choice=FORCED) == TAP["function"]["parameters"]
    empty = tool(name="tap")
    assert schema(tools=[empty], tool_choice=FORCED) == {"type": "object", "properties": {}}


def test_a_required_call_is_vllms_array():
    made = schema(tools=[WEATHER, TAP], tool_choice="required")
    assert (made["type"], made["minItems"], "maxItems" in made) == ("array", 1, False)
    first, second = made["items"]["anyOf"]
    assert first["properties"]["name"] == {"type": "string", "enum": ["get_weather"]}
    assert second["properties"]["parameters"] == TAP["function"]["parameters"]
    assert first["required"] == ["name", "parameters"]
    one = schema(tools=[TAP], tool_choice="required", parallel_tool_calls=False)
    assert one["maxItems"] == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what vLLM imports
def test_it_is_the_schema_that_vllm_makes_of_the_same_tools():
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.tool_parsers.utils import get_json_schema_from_tools

    defined = tool(parameters={"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}})
    tools = [WEATHER, TAP, defined, tool(name="g")]
    for parallel in (True, False):
        request = ChatCompletionRequest(messages=[], tools=tools)
        theirs = get_json_schema_from_tools("required", request.tools, parallel)
        ours = forced_schema("tools", tools, ToolChoice("required"), parallel)
        assert ours is not None
        assert json.loads(ours) == theirs


def test_definitions_move_to_the_top_and_may_not_contradict_each_other():
    def defines(name: str, kind: str) -> dict[str, object]:
        return tool(name=name, parameters={"$ref": "#/$defs/x", "$defs": {"x": {"type": kind}}})

    made = schema(tools=[defines("f", "object"), defines("g", "object")], tool_choice="required")
    assert made["$defs"] == {"x": {"type": "object"}}
    with pytest.raises(InvalidArgumentError) as refused:
        generation(tools=[defines("f", "object"), defines("g", "array")], tool_choice="required")
    assert refused.value.field == "tools[1].function.parameters.$defs.x"


def test_a_forced_call_and_another_constraint_are_refused_with_both_names():
    with pytest.raises(InvalidArgumentError) as refused:
        generation(tools=[TAP], tool_choice="required", response_format={"type": "json_object"})
    assert {"tool_choice", "response_format"} <= set(refused.value.message.replace(":", "").split())


def test_an_engine_that_does_not_understand_the_grammar_blames_the_tools():
    request = generation(tools=[TAP], tool_choice="required")
    assert request.field_names["sampling.structured_output.json_schema"] == "tools"


def native(*tools: dict[str, Any], **render: object) -> inference_pb2.GenerateRequest:
    message = conversation_pb2.Message(role=conversation_pb2.ROLE_USER, text="Hi")
    request = inference_pb2.GenerateRequest(messages=[message])
    for one in tools:
        request.render.tools.add().update(one)
    request.render.MergeFrom(conversation_pb2.RenderOptions(**render))
    return request


def checked(request: inference_pb2.GenerateRequest) -> Any:
    return native_request(request, "m", Caller("o"), 60.0)


def choice(**kind: object) -> conversation_pb2.ToolChoice:
    return conversation_pb2.ToolChoice(**kind)


def test_a_native_request_forces_calls_as_well():
    made = checked(native(WEATHER, TAP, tool_choice=choice(function="tap")))
    grammar = json.loads(made.sampling.structured_output.json_schema)
    assert grammar == TAP["function"]["parameters"]
    assert made.field_names == {"sampling.structured_output.json_schema": "render.tools"}
    assert made.tool_use is made.render_options
    assert not checked(native(TAP)).sampling.HasField("structured_output")


def test_the_grammar_of_native_tools_does_not_depend_on_protobufs_order():
    names = [f"p{number}" for number in range(40)]
    forced = choice(function="f")

    def grammar(order: list[str]) -> str:
        properties = {"type": "object", "properties": {name: {"type": "null"} for name in order}}
        made = checked(native(tool(parameters=properties), tool_choice=forced))
        text: str = made.sampling.structured_output.json_schema
        return text

    assert grammar(names) == grammar(names[::-1])
    assert list(json.loads(grammar(names))["properties"]) == sorted(names)


NAN = struct_pb2.Struct(fields={"n": struct_pb2.Value(number_value=float("nan"))})


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        pytest.param(native(TAP, tool(name="a b")), "render.tools[1].function.name", id="a name"),
        pytest.param(native(tool_choice=choice(required=True)), "render.tool_choice", id="none"),
        pytest.param(native(TAP, tool_choice=choice(function="f")), "render.tool_choice", id="f"),
        pytest.param(
            native(TAP, tool_choice=choice(required=False)),
            "render.tool_choice.required",
            id="false",
        ),
        pytest.param(native(TAP, tools=[NAN]), "render.tools", id="no number"),
    ],
)
def test_a_native_request_is_refused_by_its_own_names(request_, field):
    with pytest.raises(InvalidArgumentError) as refused:
        checked(request_)
    assert refused.value.field == field


def test_a_native_forced_call_beside_another_grammar_is_refused():
    request = native(TAP, tool_choice=choice(required=True))
    request.sampling.structured_output.regex = "a"
    with pytest.raises(InvalidArgumentError) as refused:
        checked(request)
    assert refused.value.field == "render.tool_choice"
    assert "sampling.structured_output" in refused.value.message
