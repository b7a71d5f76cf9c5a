"""The body of POST /v1/chat/completions: typed, parsed and checked. Unknown extra fields are accepted."""

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import msgspec

from services.gateway.parameters import check_logit_bias, check_ranges, check_stops
from services.runtime.errors import InvalidArgumentError, UnimplementedError

MAX_MESSAGES = 1024
_SHOWN_BYTES = 60
_KINDS = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
_CHOICES = {
    "].role": "system, developer, user, assistant or tool",
    "].type": "text or image_url",
    "response_format.type": "text, json_object or json_schema",
}
"""What may stand where msgspec says no more than "invalid", by the end of the path."""
_PATH = re.compile(r"(?P<problem>.*?)(?: - at `(?P<path>.*)`)?", re.DOTALL)
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")


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
    tool_calls: list[Any] | None = None
    tool_call_id: str | None = None


class StreamOptions(msgspec.Struct):
    """`stream_options`."""

    include_usage: bool | None = None


class JsonSchema(msgspec.Struct):
    """`response_format.json_schema`."""

    schema: dict[str, Any]


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

    chat_template_kwargs: dict[str, Any] | None = None


class ChatRequest(ExtraBody):
    """The whole body. null counts as absent, as in OpenAI's own API."""

    model: str = ""
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
    stop: str | list[str] | None = None
    n: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    logit_bias: dict[str, float] | None = None
    response_format: ResponseFormat | None = None
    ignore_eos: bool | None = None
    priority: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    extra_body: ExtraBody | None = None

    @property
    def stops(self) -> list[str]:
        """`stop` as a list."""
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or ())

    @property
    def template_variables(self) -> dict[str, Any]:
        """`chat_template_kwargs`, the nested ones first, without the switches that have fields of their own."""
        nested = self.extra_body.chat_template_kwargs if self.extra_body else None
        merged = {**(nested or {}), **(self.chat_template_kwargs or {})}
        return {k: v for k, v in merged.items() if k not in Switches.__struct_fields__}

    def switch(self, name: Literal["enable_thinking", "return_reasoning"]) -> bool | None:
        """A switch from wherever the client put it; top level wins. Raises where it is no boolean."""
        places: list[tuple[str, Any]] = [("", self), ("extra_body.", self.extra_body)]
        for prefix, place in places:
            if place is None:
                continue
            value = getattr(place, name)
            if value is None:
                value = (place.chat_template_kwargs or {}).get(name)
                prefix += "chat_template_kwargs."
            if value is not None and not isinstance(value, bool):
                raise InvalidArgumentError(prefix + name, value, "true or false")
            if value is not None:
                return value
        return None


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
    """msgspec's words as a limit, in JSON's own: "Expected `int | null`, got `str`" -> "an integer, not a string"."""
    expected = re.fullmatch(r"Expected (.*), got (.*)", problem, re.DOTALL)
    if expected:
        return f"{_kinds(expected[1])}, not {_kinds(expected[2])}"
    missing = re.fullmatch(r"Object missing required field `(.*)`", problem, re.DOTALL)
    if missing:
        return f"an object with the field {missing[1]}"
    return next((words for end, words in _CHOICES.items() if path.endswith(end)), "valid")


def _kinds(types: str) -> str:
    names = [_KINDS.get(name, name) for name in types.strip("`").split(" | ")]
    # null counts as absent wherever it is allowed: saying so would only distract.
    return " or ".join(name for name in names if name != "null" or len(names) == 1)


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
    _check_messages(request.messages)
    values = {
        name: value
        for name in request.__struct_fields__
        if isinstance(value := getattr(request, name), int | float) and not isinstance(value, bool)
    }
    check_ranges(values)
    if request.max_completion_tokens is not None:  # the newer name of max_tokens; it wins
        check_ranges({**values, "max_tokens": request.max_completion_tokens}, _COMPLETION_NAME)
    check_stops("stop", request.stops)
    if request.stream_options is not None and not request.stream:
        raise InvalidArgumentError("stream_options", "set", 'absent unless "stream" is true')
    check_logit_bias("logit_bias", logit_bias(request))
    form = request.response_format
    if form is not None and form.type == "json_schema" and form.json_schema is None:
        raise InvalidArgumentError("response_format.json_schema", None, "an object")
    if request.logprobs or request.top_logprobs:
        raise UnimplementedError("logprobs")


_COMPLETION_NAME = {"max_tokens": "max_completion_tokens"}


def _check_messages(messages: list[ChatMessage] | None) -> None:
    if not messages or len(messages) > MAX_MESSAGES:
        shown = "absent" if messages is None else f"{len(messages)} messages"
        raise InvalidArgumentError("messages", shown, f"1 to {MAX_MESSAGES} messages")
    for index, message in enumerate(messages):
        if message.content is None and message.role != "assistant":
            raise InvalidArgumentError(
                f"messages[{index}].content", None, "a string or a list of parts"
            )


def logit_bias(request: ChatRequest) -> Mapping[int, float]:
    """`logit_bias` by token id. Raises InvalidArgumentError for a key that is no token id."""
    biases = {}
    for key, bias in (request.logit_bias or {}).items():
        if not key.isascii() or not key.isdigit() or len(key) > 9:
            raise InvalidArgumentError("logit_bias", key, "an object whose keys are token ids")
        biases[int(key)] = bias
    return biases
