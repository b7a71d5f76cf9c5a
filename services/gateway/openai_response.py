"""Chat completion bodies, streamed and not, exactly as OpenAI's clients read them (docs/openai.md has the rules)."""

from collections.abc import Collection, Sequence
from typing import Literal

import msgspec

from services.gateway.events import ChoiceEnd, Finish, PositionLogprobs, ToolCall, Usage
from services.gateway.openai_logprobs import ChoiceLogprobs, shown_tokens
from services.gateway.openai_tool_calls import Call, CallDelta, call_delta, whole_calls
from services.runtime.errors import ServiceError

DONE = b"data: [DONE]\n\n"
PING = b": ping\n"
"""A comment, which no client shows. With one end of line: with two, some take it for an event."""
_FINISH: dict[Finish, Literal["stop", "length", "tool_calls"]] = {
    Finish.STOP: "stop",
    Finish.STOP_SEQUENCE: "stop",
    Finish.LENGTH: "length",
    Finish.TIME_LIMIT: "length",
    Finish.CANCELLED: "stop",
    Finish.TOOL_CALLS: "tool_calls",
}


class CachedTokens(msgspec.Struct):
    """`usage.prompt_tokens_details`."""

    cached_tokens: int


class UsageBody(msgspec.Struct):
    """`usage`."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens


class Delta(msgspec.Struct, omit_defaults=True):
    """What one chunk adds; both names of the thought, because clients disagree."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[CallDelta] | None = None


class ChunkChoice(msgspec.Struct):
    """One choice of a chunk; the reason is null until the end."""

    index: int
    delta: Delta
    finish_reason: str | None = None
    logprobs: ChoiceLogprobs | msgspec.UnsetType = msgspec.UNSET


class Chunk(msgspec.Struct, omit_defaults=True):
    """One server-sent event."""

    id: str
    object: str
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: UsageBody | None = None
    sequence: int | None = None
    """Where the generation is kept: the cursor to resume after. Not OpenAI's."""


class AnswerMessage(msgspec.Struct, omit_defaults=True):
    """The whole answer; content is a string, never null."""

    role: str
    content: str
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Call] | None = None


class AnswerChoice(msgspec.Struct):
    """One choice of a whole answer."""

    index: int
    message: AnswerMessage
    finish_reason: str
    logprobs: ChoiceLogprobs | None = None


class Answer(msgspec.Struct):
    """The body of a call without stream."""

    id: str
    object: str
    created: int
    model: str
    choices: list[AnswerChoice]
    usage: UsageBody


class ErrorObject(msgspec.Struct):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct):
    """OpenAI's error body."""

    error: ErrorObject


_encode = msgspec.json.Encoder().encode


def sse(body: msgspec.Struct) -> bytes:
    """One server-sent event."""
    return b"data: " + _encode(body) + b"\n\n"


def error_body(error: ServiceError) -> ErrorBody:
    """A ServiceError in OpenAI's shape."""
    row = error.row
    # What native clients nest under `sampling` stands at top level here.
    message, param = (text.removeprefix("sampling.") for text in (error.message, error.field))
    return ErrorBody(ErrorObject(message, row.openai_type, param or None, row.openai_code))


def encode(body: msgspec.Struct) -> bytes:
    """One JSON object."""
    return _encode(body)


def usage_body(usage: Usage) -> UsageBody:
    """Token counts as OpenAI names them."""
    return UsageBody(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
        prompt_tokens_details=CachedTokens(usage.cached_tokens),
    )


class ChunkWriter:
    """Chunks of one stream: the role once per choice, with its first text; one final reason per choice.

    Args:
        begun: choices whose role the reader has.
    """

    def __init__(
        self, completion_id: str, created: int, model: str, begun: Collection[int] = ()
    ) -> None:
        self._head = (completion_id, "chat.completion.chunk", created, model)
        self._begun = set(begun)
        self.sequence: int | None = None
        """Of the event that is written; None: it is not told."""

    def text(self, index: int, text: str, logprobs: Sequence[PositionLogprobs] = ()) -> bytes:
        """Text of the answer; its log-probabilities only where there are any."""
        choice = ChunkChoice(index, Delta(self._role(index), content=text))
        if logprobs:
            choice.logprobs = ChoiceLogprobs(shown_tokens(logprobs))
        return self._chunk(choice)

    def reasoning(self, index: int, text: str) -> bytes:
        """Text of the thought."""
        delta = Delta(self._role(index), reasoning_content=text, reasoning=text)
        return self._chunk(ChunkChoice(index, delta))

    def tool_call(self, call: ToolCall) -> bytes:
        """A piece of a tool call."""
        index = call.choice_index
        delta = Delta(self._role(index), tool_calls=[call_delta(call)])
        return self._chunk(ChunkChoice(index, delta))

    def end(self, end: ChoiceEnd) -> bytes:
        """The reason, after an empty text where there was none at all."""
        index = end.choice_index
        first = self.text(index, "") if index not in self._begun else b""
        return first + self._chunk(ChunkChoice(index, Delta(), _FINISH[end.reason]))

    def usage(self, usage: Usage) -> bytes:
        """The last chunk, only for who asked."""
        return sse(Chunk(*self._head, choices=[], usage=usage_body(usage)))

    def _role(self, index: int) -> str | None:
        if index in self._begun:
            return None
        self._begun.add(index)
        return "assistant"

    def _chunk(self, choice: ChunkChoice) -> bytes:
        return sse(Chunk(*self._head, choices=[choice], sequence=self.sequence))


class AnswerBuilder:
    """The whole answer, gathered from its pieces.

    Args:
        with_logprobs: they were asked for.
    """

    def __init__(
        self,
        completion_id: str,
        created: int,
        model: str,
        choice_count: int,
        with_logprobs: bool = False,
    ) -> None:
        self._head = (completion_id, "chat.completion", created, model)
        self._texts: list[list[str]] = [[] for _ in range(choice_count)]
        self._thoughts: list[list[str]] = [[] for _ in range(choice_count)]
        self._logprobs: list[list[msgspec.Raw]] = [[] for _ in range(choice_count)]
        self._calls: list[list[ToolCall]] = [[] for _ in range(choice_count)]
        self._with_logprobs = with_logprobs

    def text(self, index: int, text: str, logprobs: Sequence[PositionLogprobs] = ()) -> None:
        """Text of the answer."""
        self._texts[index].append(text)
        if logprobs:
            self._logprobs[index].extend(shown_tokens(logprobs))

    def reasoning(self, index: int, text: str) -> None:
        """Text of the thought."""
        self._thoughts[index].append(text)

    def tool_call(self, call: ToolCall) -> None:
        """A piece of a tool call."""
        self._calls[call.choice_index].append(call)

    def build(self, ends: list[ChoiceEnd], usage: Usage) -> Answer:
        """The body."""
        return Answer(*self._head, choices=[self._choice(e) for e in ends], usage=usage_body(usage))

    def _choice(self, end: ChoiceEnd) -> AnswerChoice:
        index = end.choice_index
        thought = "".join(self._thoughts[index]) or None
        calls = whole_calls(self._calls[index]) or None
        message = AnswerMessage("assistant", "".join(self._texts[index]), thought, thought, calls)
        logprobs = ChoiceLogprobs(self._logprobs[index]) if self._with_logprobs else None
        return AnswerChoice(index, message, _FINISH[end.reason], logprobs)
