"""The body of POST /v1/chat/completions: typed, parsed and checked. Unknown extra fields are accepted."""

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import msgspec

from services.gateway.json_tree import read_tree
from services.gateway.json_words import expectation
from services.gateway.parameters import (
    check_conversation_size,
    check_logit_bias,
    check_ranges,
    check_stops,
)
from services.runtime.errors import InvalidArgumentError, UnimplementedError

MAX_TOOLS = 128
MAX_TOOLS_BYTES = 128 * 1024
MAX_VARIABLES_BYTES = 16 * 1024
MAX_BIASES_BYTES = 64 * 1024
MAX_STOPS_BYTES = 32 * 1024
MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH = 64 * 1024, 64
_SHOWN_BYTES = 60
_CHOICES = {
    "].role": "system, developer, user, assistant or tool",
    "].type": "text or image_url",
    "response_format.type": "text, json_object or json_schema",
}
"""What may stand where msgspec says no more than "invalid", by the end of the path."""
_PATH = re.compile(r"(?P<problem>.*?)(?: - at `(?P<path>.*)`)?", re.DOTALL)
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")


_ABSENT = msgspec.Raw(b"null")
"""Free-form fields are skipped by the parser and read by json_tree, within limits."""


class ImageUrl(msgspec.Struct):
    """`image_url` of an image part."""

    url: str


class TextPart(msgspec.Struct, tag="text"):
    """A part that is text."""

    text: str


class ImagePart(msgspec.Struct, tag="image_url"):
    """A part that is an image; some clients send the URL alone."""

    image_url: ImageUrl | str


class ChatMessage(msgspec.Struct):
    """One message. `developer` is OpenAI's newer word for `system`."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart | ImagePart] | None = None
    tool_calls: msgspec.Raw = _ABSENT
    tool_call_id: str | None = None


class StreamOptions(msgspec.Struct):
    """`stream_options`."""

    include_usage: bool | None = None


class JsonSchema(msgspec.Struct):
    """`response_format.json_schema`."""

    schema: msgspec.Raw


class ResponseFormat(msgspec.Struct):
    """`response_format`."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class Switches(msgspec.Struct):
    """What phone-agent clients put at top level, in `chat_template_kwargs`, or in a nested `extra_body`."""

    enable_thinking: bool | None = None
    return_reasoning: bool | None = None


class ExtraBody(Switches):
    """A nested `extra_body`."""

    chat_template_kwargs: msgspec.Raw = _ABSENT


class ChatRequest(ExtraBody):
    """The whole body. null counts as absent, as in OpenAI's own API."""

    model: str | None = None
    messages: list[ChatMessage] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    min_tokens: int | None = None
    stop: msgspec.Raw = _ABSENT
    n: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    logit_bias: msgspec.Raw = _ABSENT
    response_format: ResponseFormat | None = None
    ignore_eos: bool | None = None
    priority: int | None = None
    tools: msgspec.Raw = _ABSENT
    tool_choice: msgspec.Raw = _ABSENT
    extra_body: ExtraBody | None = None

    def stops(self) -> list[str]:
        """`stop` as a list."""
        kind = str | list[str] | None
        stop: str | list[str] | None = read_tree("stop", self.stop, kind, MAX_STOPS_BYTES)
        return [stop] if isinstance(stop, str) else list(stop or ())

    def tool_list(self) -> list[dict[str, Any]]:
        """`tools`."""
        kind = list[dict[str, Any]] | None
        tools: list[dict[str, Any]] = read_tree("tools", self.tools, kind, MAX_TOOLS_BYTES) or []
        if len(tools) > MAX_TOOLS:
            raise InvalidArgumentError("tools", f"{len(tools)} tools", f"at most {MAX_TOOLS}")
        return tools

    def template_variables(self) -> dict[str, Any]:
        """`chat_template_kwargs`, the nested ones first, without the switches that have fields of their own."""
        merged = dict(_variables("", self))
        if self.extra_body is not None:
            merged = {**_variables("extra_body.", self.extra_body), **merged}
        return {k: v for k, v in merged.items() if k not in Switches.__struct_fields__}

    def switch(self, name: Literal["enable_thinking", "return_reasoning"]) -> bool | None:
        """A switch from wherever the client put it; top level wins. Raises where it is no boolean."""
        places: list[tuple[str, Any]] = [("", self), ("extra_body.", self.extra_body)]
        for prefix, place in places:
            if place is None:
                continue
            value = getattr(place, name)
            if value is None:
                value = _variables(prefix, place).get(name)
                prefix += "chat_template_kwargs."
            if value is not None and not isinstance(value, bool):
                raise InvalidArgumentError(prefix + name, value, "true or false")
            if value is not None:
                return value
        return None


def _variables(prefix: str, place: ExtraBody) -> dict[str, Any]:
    field, raw = f"{prefix}chat_template_kwargs", place.chat_template_kwargs
    found: dict[str, Any] = read_tree(field, raw, dict[str, Any] | None, MAX_VARIABLES_BYTES) or {}
    return found


_Body = TypeVar("_Body")


def parse(body: bytes, kind: type[_Body]) -> _Body:
    """The body as a typed struct. Raises InvalidArgumentError naming the field, as `messages[1].content[0]`."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _named(str(error), body) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        beginning = body[:_SHOWN_BYTES].decode("utf-8", "replace")
        limit = "one whole JSON object, in UTF-8 and without lone surrogates"
        raise InvalidArgumentError("body", beginning, limit) from None
    except RecursionError:
        raise InvalidArgumentError("body", "<deeply nested>", "JSON of moderate depth") from None


def _named(problem: str, body: bytes) -> InvalidArgumentError:
    match = _PATH.fullmatch(problem)
    assert match is not None  # noqa: S101  (the pattern matches anything)
    path = (match["path"] or "$").removeprefix("$").removeprefix(".")
    return InvalidArgumentError(
        path or "body", _value_at(path, body), _limit(match["problem"], path)
    )


def _limit(problem: str, path: str) -> str:
    words = expectation(problem)
    return words or next((words for end, words in _CHOICES.items() if path.endswith(end)), "valid")


def _value_at(path: str, body: bytes) -> Any:
    """The offending value; only on the way to an error, so a second parse does no harm."""
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return "<broken JSON>"  # its type was wrong before its end was reached
    for key, index in _STEP.findall(path):
        if index and isinstance(value, list) and int(index) < len(value):
            value = value[int(index)]
        elif key and isinstance(value, dict) and key in value:
            value = value[key]
    return value


def check(request: ChatRequest) -> None:
    """Everything that types alone do not say. Raises InvalidArgumentError or UnimplementedError."""
    _check_messages(request.messages or [])
    values = {
        name: value
        for name in request.__struct_fields__
        if isinstance(value := getattr(request, name), int | float) and not isinstance(value, bool)
    }
    check_ranges(values)
    if request.max_completion_tokens is not None:  # the newer name of max_tokens; it wins
        check_ranges({**values, "max_tokens": request.max_completion_tokens}, _COMPLETION_NAME)
    check_stops("stop", request.stops())
    if request.stream_options is not None and not request.stream:
        raise InvalidArgumentError("stream_options", "set", 'absent unless "stream" is true')
    check_logit_bias("logit_bias", logit_bias(request))
    form = request.response_format
    if form is not None and form.type == "json_schema":
        if form.json_schema is None:
            raise InvalidArgumentError("response_format.json_schema", None, "an object")
        field = "response_format.json_schema.schema"
        read_tree(
            field, form.json_schema.schema, dict[str, Any], MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH
        )
    if request.logprobs or request.top_logprobs:
        raise UnimplementedError("logprobs")


_COMPLETION_NAME = {"max_tokens": "max_completion_tokens"}


def _check_messages(messages: list[ChatMessage]) -> None:
    part_counts = (len(m.content) for m in messages if isinstance(m.content, list))
    check_conversation_size(len(messages), part_counts)
    for index, message in enumerate(messages):
        if message.content is None and message.role != "assistant":
            raise InvalidArgumentError(
                f"messages[{index}].content", None, "a string or a list of parts"
            )


def logit_bias(request: ChatRequest) -> Mapping[int, float]:
    """`logit_bias` by token id. Raises InvalidArgumentError for a key that is no token id."""
    kind = dict[str, float] | None
    by_key: dict[str, float] = (
        read_tree("logit_bias", request.logit_bias, kind, MAX_BIASES_BYTES) or {}
    )
    biases: dict[int, float] = {}
    for key, bias in by_key.items():
        if not key.isascii() or not key.isdigit() or len(key) > 9:
            raise InvalidArgumentError("logit_bias", key, "an object whose keys are token ids")
        biases[int(key)] = bias
    return biases
