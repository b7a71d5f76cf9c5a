"""How a message's parts are laid before the chat template."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from services.tokenizer.conversation import Image, Message, Role
from services.tokenizer.template import ChatTemplate


class ContentLayout:
    """Messages as the dictionaries that chat templates read."""

    def __init__(
        self,
        template: ChatTemplate,
        content_format: Literal["openai", "string"],
        image_placeholder: str,
    ) -> None:
        self._placeholder = image_placeholder
        self._list_roles = template.list_roles if content_format == "openai" else frozenset[Role]()

    def message(self, message: Message, guard: Callable[[Any], Any]) -> dict[str, Any]:
        """One message.

        Args:
            guard: applied to everything that the client wrote, and to nothing else.
        """
        laid: dict[str, Any] = {
            "role": message.role.value,
            "content": self._content(message, guard),
        }
        if message.tool_calls:
            laid["tool_calls"] = [
                {
                    "id": guard(call.id),
                    "type": "function",
                    "function": {"name": guard(call.name), "arguments": guard(call.arguments)},
                }
                for call in message.tool_calls
            ]
        if message.tool_call_id:
            laid["tool_call_id"] = guard(message.tool_call_id)
        return laid

    def _content(self, message: Message, guard: Callable[[Any], Any]) -> str | list[dict[str, Any]]:
        if isinstance(message.content, str):
            return str(guard(message.content))
        if message.role in self._list_roles and message.content:
            return [
                {"type": "image"}
                if isinstance(part, Image)
                else {"type": "text", "text": guard(part.text)}
                for part in message.content
            ]
        return self._string(message, guard)

    def _string(self, message: Message, guard: Callable[[Any], Any]) -> str:
        """As vLLM's format `string`: placeholders, then the texts that are not empty, joined with newlines."""
        pieces: Sequence[str] = [self._placeholder for _ in message.images()]
        return "\n".join([*pieces, *(guard(text) for text in message.texts() if text)])
