"""Text completion bodies, streamed and not, as OpenAI's clients read them."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from services.gateway.events import ChoiceEnd, Finish, PositionLogprobs, Usage
from services.gateway.legacy_logprobs import LegacyLogprobs, LogprobWriter, joined
from services.gateway.openai_response import UsageBody, sse, usage_body

_FINISH: dict[Finish, Literal["stop", "length"]] = {
    Finish.LENGTH: "length",
    Finish.TIME_LIMIT: "length",
}
"""Every other end is a stop."""


class TextChoice(msgspec.Struct):
    """One choice, or what one event adds to it; the reason is null until the end."""

    index: int
    text: str
    logprobs: LegacyLogprobs | None = None
    finish_reason: Literal["stop", "length"] | None = None


class TextCompletion(msgspec.Struct):
    """The whole answer, or one server-sent event; usage stands in the former, and in the last event for who asked."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: UsageBody | msgspec.UnsetType = msgspec.UNSET
    sequence: int | msgspec.UnsetType = msgspec.UNSET
    """Where the generation is kept: the cursor to resume after. Not OpenAI's."""


class TextCompletionWriter:
    """Both forms of one answer.

    Args:
        choice_count: over all prompts.
        with_logprobs: they were asked for.
        characters: choice -> characters of its text that the reader has.
    """

    def __init__(
        self,
        completion_id: str,
        created: int,
        model: str,
        choice_count: int,
        with_logprobs: bool = False,
        characters: Mapping[int, int] | None = None,
    ) -> None:
        self._id, self._created, self._model = completion_id, created, model
        self._texts: list[list[str]] = [[] for _ in range(choice_count)]
        self._logprobs: list[list[LegacyLogprobs]] = [[] for _ in range(choice_count)]
        had = characters or {}
        self._writers = [
            LogprobWriter(had.get(index, 0))
            for index in range(choice_count if with_logprobs else 0)
        ]
        self.sequence: int | None = None
        """Of the event that is written; None: it is not told."""

    def text(self, index: int, text: str, logprobs: Sequence[PositionLogprobs] = ()) -> bytes:
        """An event with text of one choice; its log-probabilities only where there are any."""
        made = self._writers[index].piece(logprobs) if logprobs else None
        return sse(self._body([TextChoice(index, text, made)]))

    def end(self, end: ChoiceEnd) -> bytes:
        """An event with the reason of one choice."""
        return sse(self._body([TextChoice(end.choice_index, "", finish_reason=_reason(end))]))

    def usage(self, usage: Usage) -> bytes:
        """The last event, only for who asked."""
        return sse(self._body([], usage))

    def keep(self, index: int, text: str, logprobs: Sequence[PositionLogprobs] = ()) -> None:
        """Text of one choice of a whole answer."""
        self._texts[index].append(text)
        if logprobs:
            self._logprobs[index].append(self._writers[index].piece(logprobs))

    def whole(self, ends: Sequence[ChoiceEnd], usage: Usage) -> TextCompletion:
        """The whole answer; one end for each choice."""
        choices = [
            TextChoice(
                end.choice_index,
                "".join(self._texts[end.choice_index]),
                joined(self._logprobs[end.choice_index]) if self._writers else None,
                finish_reason=_reason(end),
            )
            for end in ends
        ]
        return self._body(choices, usage)

    def _body(self, choices: list[TextChoice], usage: Usage | None = None) -> TextCompletion:
        body = TextCompletion(self._id, "text_completion", self._created, self._model, choices)
        if usage is not None:
            body.usage = usage_body(usage)
        if self.sequence is not None:
            body.sequence = self.sequence
        return body


def _reason(end: ChoiceEnd) -> Literal["stop", "length"]:
    return _FINISH.get(end.reason, "stop")
