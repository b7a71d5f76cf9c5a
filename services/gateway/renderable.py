"""A conversation to render, which the gateway passes on unread."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class Renderable(Protocol):
    """A conversation, checked; the tokenizer reads it, the gateway does not."""

    @property
    def messages(self) -> Sequence[Any]:
        """hotline.v1.Message."""

    @property
    def render_options(self) -> Any:
        """hotline.v1.RenderOptions."""


@dataclass(frozen=True)
class Conversation:
    """See Renderable: what is rendered without being generated from."""

    messages: Sequence[Any]
    render_options: Any


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the model's, as a session keeps it."""

    token_ids: Sequence[int]
    """As they were sampled; none where the model ended at once."""
    stop_match: str
    prefix: str
    """What its prompt's end said already in the model's name."""


@dataclass(frozen=True, slots=True)
class Piece:
    """See Renderable: a piece of a session's prompt."""

    messages: Sequence[Any]
    render_options: Any
    after: Answer | None = None
    """The messages go on after this answer, and only what follows it is rendered."""
    answers: Sequence[tuple[int, Answer]] = ()
    """Assistant messages among them, by index, whose texts are these answers; in rising order."""
    may_be_empty: bool = False
    """Of a turn of the past, which may have no content but images that are not shown."""


@dataclass(frozen=True)
class RawPrompt:
    """A prompt as it is, without messages and template."""

    content: str | Sequence[int]
    """A text, in which control tokens become their ids, or token ids."""
    add_special_tokens: bool
    """With a text: puts before it what the tokenizer puts before every text."""
    field: str
    """Where the client wrote it, as errors name it."""
