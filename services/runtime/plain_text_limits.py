"""How much plain text, and how many ids, one call turns into the other, as the contract promises it.

The gateway checks before it does anything for a request; the tokenizer checks again, because it trusts nobody.
"""

from collections.abc import Sequence

from services.runtime.errors import InvalidArgumentError

MAX_TEXT_BYTES = 1024 * 1024
"""UTF-8 of one text."""
MAX_IDS = 1024 * 1024
"""Token ids of one text."""


def check_text(text: str) -> None:
    """Raises InvalidArgumentError naming `text` where it is too long."""
    size_bytes = len(text.encode())
    if size_bytes > MAX_TEXT_BYTES:
        raise InvalidArgumentError(
            "text", f"{size_bytes} bytes", f"at most {MAX_TEXT_BYTES} bytes of UTF-8"
        )


def check_id_count(token_ids: Sequence[int]) -> None:
    """Raises InvalidArgumentError naming `token_ids` where they are too many."""
    if len(token_ids) > MAX_IDS:
        raise InvalidArgumentError("token_ids", f"{len(token_ids)} ids", f"at most {MAX_IDS} ids")
