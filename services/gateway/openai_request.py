"""The body of POST /v1/chat/completions. Parameters come from the table, unknown extra fields are accepted."""

from typing import TYPE_CHECKING, Literal

import msgspec

from services.gateway.json_tree import ABSENT
from services.gateway.parameter import Route
from services.gateway.parameter_body import RouteBody, body_of
from services.gateway.parameters import check_conversation_size
from services.runtime.errors import InvalidArgumentError

# A type checker sees what every body has; the parameters' fields are the table's.
if TYPE_CHECKING:
    _Body = RouteBody
else:
    _Body = body_of(Route.CHAT)


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
    tool_calls: msgspec.Raw = ABSENT
    tool_call_id: str | None = None


class ChatRequest(_Body):
    """The whole body. null counts as absent, as in OpenAI's own API."""

    messages: list[ChatMessage] | None = None


def check_messages(messages: list[ChatMessage]) -> None:
    """Raises InvalidArgumentError for too many messages or parts, or a message without content."""
    part_counts = (len(m.content) for m in messages if isinstance(m.content, list))
    check_conversation_size(len(messages), part_counts)
    for index, message in enumerate(messages):
        if message.content is None and message.role != "assistant":
            raise InvalidArgumentError(
                f"messages[{index}].content", None, "a string or a list of parts"
            )
