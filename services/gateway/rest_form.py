"""How the answer of a generation that was asked for over REST is written, also for who reads it later."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from services.gateway.completion_response import TextCompletionWriter
from services.gateway.events import Failed, Finished, Numbered, Reasoning, Text, ToolCall
from services.gateway.openai_response import DONE, ChunkWriter
from services.gateway.retained import Retained

CHAT_PREFIX, COMPLETION_PREFIX = "chatcmpl-", "cmpl-"
"""Before a generation's id, they make the id of an answer."""


class Chunks(Protocol):
    """Server-sent events of one stream."""

    def of(self, numbered: Numbered) -> bytes:
        """What an event before the terminal one becomes; nothing for some. Raises what it failed of."""

    def last(self, finished: Finished) -> Sequence[bytes]:
        """What the terminal event becomes: each of them an event of its own, [DONE] the last one."""


@dataclass(frozen=True)
class RestForm:
    """What the request said of its answer."""

    is_chat: bool
    generation_id: str
    created_s: int
    """Unix time."""
    model: str
    choice_count: int = 1
    with_logprobs: bool = False
    include_usage: bool = False
    is_numbered: bool = False
    """Chunks tell their sequence numbers."""

    @property
    def answer_id(self) -> str:
        """As clients see it."""
        return (CHAT_PREFIX if self.is_chat else COMPLETION_PREFIX) + self.generation_id

    def chunks(
        self, begun: Collection[int] = (), characters: Mapping[int, int] | None = None
    ) -> Chunks:
        """For a new reader.

        Args:
            begun: choices of which the reader has the beginning.
            characters: choice -> characters of its text that the reader has.
        """
        if self.is_chat:
            return ChatChunks(self, begun)
        return TextChunks(self, characters or {})


def begun_s(kept: Retained | None, now_s: float) -> int:
    """When the answer began: now, unless a generation of this name is kept."""
    return int(now_s) if kept is None else kept.retention.form.created_s


class ChatChunks:
    """Chunks of POST /v1/chat/completions; see Chunks."""

    def __init__(self, form: RestForm, begun: Collection[int]) -> None:
        self._form = form
        self._writer = ChunkWriter(form.answer_id, form.created_s, form.model, begun)

    def of(self, numbered: Numbered) -> bytes:
        """See Chunks."""
        writer = self._writer
        if self._form.is_numbered:
            writer.sequence = numbered.sequence
        match numbered.event:
            case Text(index, text, logprobs):
                return writer.text(index, text, logprobs)
            case Reasoning(index, text):
                return writer.reasoning(index, text)
            case ToolCall() as call:
                return writer.tool_call(call)
            case Failed(error):
                raise error
        return b""

    def last(self, finished: Finished) -> Sequence[bytes]:
        """See Chunks."""
        writer = self._writer
        writer.sequence = None  # a reader that has only a part of the end wants all of it once more
        ends = [writer.end(end) for end in finished.choices]
        usage = [writer.usage(finished.usage)] if self._form.include_usage else []
        return [*ends, *usage, DONE]


class TextChunks:
    """Events of POST /v1/completions; see Chunks."""

    def __init__(self, form: RestForm, characters: Mapping[int, int]) -> None:
        self._form = form
        self._writer = TextCompletionWriter(
            form.answer_id,
            form.created_s,
            form.model,
            form.choice_count,
            form.with_logprobs,
            characters,
        )

    def of(self, numbered: Numbered) -> bytes:
        """See Chunks."""
        if self._form.is_numbered:
            self._writer.sequence = numbered.sequence
        match numbered.event:
            case Text(index, text, logprobs):
                return self._writer.text(index, text, logprobs)
            case Failed(error):
                raise error
        return b""

    def last(self, finished: Finished) -> Sequence[bytes]:
        """See Chunks."""
        self._writer.sequence = None
        ends = [self._writer.end(end) for end in finished.choices]
        usage = [self._writer.usage(finished.usage)] if self._form.include_usage else []
        return [*ends, *usage, DONE]
