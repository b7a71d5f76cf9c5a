"""What a client says to the model, without protobuf."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from services.runtime.errors import InvalidArgumentError


class Role(StrEnum):
    """Who wrote a message; the names that chat templates know."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True)
class Text:
    """A text part."""

    text: str


@dataclass(frozen=True)
class Image:
    """An image part as it came: encoded bytes, or a data URL."""

    field: str
    """Its path in the request, such as `messages[1].content[0]`."""
    source: bytes | str


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool that the model asked for."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Message:
    """One message; a string and a list with one text part are different things to some templates."""

    role: Role
    content: str | Sequence[Text | Image]
    tool_calls: Sequence[ToolCall] = ()
    tool_call_id: str = ""

    def texts(self) -> Iterator[str]:
        """The message's texts, in order."""
        if isinstance(self.content, str):
            yield self.content
        else:
            yield from (part.text for part in self.content if isinstance(part, Text))

    def images(self) -> Iterator[Image]:
        """The message's images, in order."""
        if not isinstance(self.content, str):
            yield from (part for part in self.content if isinstance(part, Image))


@dataclass(frozen=True)
class Answer:
    """An answer of the model's, by its ids."""

    field: str
    """Its path in the request, such as `continuation`."""
    token_ids: Sequence[int]
    """As they were sampled, the answer's end included."""
    stop_match: str = ""
    """The stop string of the request that ended its text."""


@dataclass(frozen=True)
class PastAnswer:
    """An assistant message whose text is an answer of the model's."""

    message_index: int
    answer: Answer
    prefix: str = ""
    """Stands before the text: what its prompt's end said already in the model's name."""


@dataclass(frozen=True)
class Conversation:
    """A conversation and how to render it."""

    messages: Sequence[Message]
    enable_thinking: bool | None = None
    variables: Mapping[str, Any] | None = None
    """Further variables for the template."""
    tools: Sequence[Mapping[str, Any]] = ()
    hides_tools: bool = False
    """The template is to see none of them."""
    after: Answer | None = None
    """The messages go on after this answer, and only what follows it is rendered."""
    past_answers: Sequence[PastAnswer] = ()
    may_be_empty: bool = False
    """A turn of the past, whose images are not shown, may have no content at all."""


@dataclass(frozen=True)
class ConversationLimits:
    """What one prompt may hold."""

    max_images: int
    max_text_bytes: int
    has_tools: bool
    """Whether the model's template knows tools."""
    parses_calls: bool = False
    """Whether somebody reads the calls of tools in its output."""


def check(conversation: Conversation, limits: ConversationLimits) -> None:
    """Raises InvalidArgumentError where a well-formed conversation is not one that this model can be asked."""
    _check_tools(conversation, limits.has_tools)
    if conversation.tools and not conversation.hides_tools and not limits.parses_calls:
        raise InvalidArgumentError(
            "tools",
            f"{len(conversation.tools)} tools",
            "empty: no parser of this model's tool calls is configured (tool_parser)",
        )
    image_count = text_bytes = 0
    said_something = False
    for message in conversation.messages:
        images = list(message.images())
        if images and message.role is not Role.USER:
            raise InvalidArgumentError(images[0].field, "image", "in a user message")
        image_count += len(images)
        sizes = [len(text.encode()) for text in message.texts()]
        text_bytes += sum(sizes)
        said_something |= bool(images or sum(sizes) or message.tool_calls)
    if not (said_something or conversation.after or conversation.may_be_empty):
        raise InvalidArgumentError("messages", "", "a conversation with some content")
    if image_count > limits.max_images:
        raise InvalidArgumentError(
            "messages", f"{image_count} images", f"at most {limits.max_images} images"
        )
    if text_bytes > limits.max_text_bytes:
        raise InvalidArgumentError(
            "messages", f"{text_bytes} bytes of text", f"at most {limits.max_text_bytes} bytes"
        )


def _check_tools(conversation: Conversation, has_tools: bool) -> None:
    for index, message in enumerate(conversation.messages):
        path = f"messages[{index}]"
        if message.tool_calls and message.role is not Role.ASSISTANT:
            raise InvalidArgumentError(
                f"{path}.tool_calls", message.role.value, "in an assistant message"
            )
        if message.tool_call_id and message.role is not Role.TOOL:
            raise InvalidArgumentError(
                f"{path}.tool_call_id", message.role.value, "in a tool message"
            )
        if has_tools:
            continue
        if message.role is Role.TOOL:
            raise InvalidArgumentError(
                f"{path}.role", "tool", "another role: this model's template has no tools"
            )
        if message.tool_calls:
            raise InvalidArgumentError(
                f"{path}.tool_calls", "tool calls", "empty: this model's template has no tools"
            )
    if conversation.tools and not has_tools:
        raise InvalidArgumentError(
            "tools", f"{len(conversation.tools)} tools", "empty: this model's template has no tools"
        )
