"""Prompts without messages: what is wrong with one, by the name that its client knows."""

from services.gateway.field_names import renamed
from services.gateway.renderable import RawPrompt
from services.runtime.errors import InvalidArgumentError, ServiceError
from services.runtime.plain_text_limits import MAX_TEXT_BYTES

_OURS = ("prompt_token_ids", "messages", "text")
"""What worker, gateway and tokenizer call a prompt."""


def check(prompt: RawPrompt) -> None:
    """Raises InvalidArgumentError for no prompt at all, or a text that is too long.

    Whether it fits the context shows when it is tokenised; the worker knows the vocabulary.
    """
    content = prompt.content
    if not content:
        wanted = "at least one token id" if not isinstance(content, str) else "at least one byte"
        raise InvalidArgumentError(prompt.field, "nothing", wanted)
    if isinstance(content, str) and (size := len(content.encode())) > MAX_TEXT_BYTES:
        raise InvalidArgumentError(
            prompt.field, f"{size} bytes", f"at most {MAX_TEXT_BYTES} bytes of UTF-8"
        )


def as_written(error: ServiceError, prompt: RawPrompt | None) -> ServiceError:
    """The error with the prompt's place in the client's request; others, and those of messages, as they are."""
    if prompt is None:
        return error
    if error.field == "features":
        # The worker counts placeholders against images, of which there are none.
        return InvalidArgumentError(
            prompt.field,
            "a prompt with placeholder tokens of images or sound",
            "without them: images go into messages",
        )
    return renamed(error, dict.fromkeys(_OURS, prompt.field))
