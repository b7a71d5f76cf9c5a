"""Whether a prompt fits a worker."""

from services.gateway.interfaces import Rendered, Worker
from services.runtime.errors import ContextLengthError, InvalidArgumentError


def answer_room(worker: Worker, rendered: Rendered, max_tokens: int | None) -> int:
    """Tokens that the answer may have at most. Raises ContextLengthError, or InvalidArgumentError for too many images."""
    prompt_tokens = len(rendered.token_ids)
    room = worker.context_tokens - prompt_tokens
    if room < 1:
        raise ContextLengthError(prompt_tokens, worker.context_tokens)
    image_count, limit = len(rendered.feature_digests), worker.max_images
    if image_count > limit:
        raise InvalidArgumentError(
            "messages", f"{image_count} images", f"at most {limit} images in one prompt"
        )
    return min(room, max_tokens or room)
