"""Plain text to token ids and back, without a chat template. Runs in a pool, never on an event loop."""

from collections.abc import Callable, Iterator, Sequence

from services.runtime.errors import InvalidArgumentError
from services.runtime.plain_text_limits import check_id_count, check_text
from services.tokenizer.renderer import TextEncoder
from services.tokenizer.special_text import new_mark

SLICE_IDS = 64 * 1024
"""Ids copied out of a message at once: one step of some milliseconds, after which other threads get their turn."""


class PlainText:
    """Both directions for one model. Thread-safe.

    Args:
        decode: text of ids; its second argument leaves out special tokens.
        vocabulary_size: token ids are below this.
        prefix: what the tokenizer puts before every text.
    """

    def __init__(
        self,
        encoder: TextEncoder,
        decode: Callable[[Sequence[int], bool], str],
        vocabulary_size: int,
        prefix: Sequence[int] = (),
    ) -> None:
        self._encoder, self._decode = encoder, decode
        self._vocabulary_size, self._prefix = vocabulary_size, prefix

    def encode(
        self, text: str, parse_special_tokens: bool = False, add_special_tokens: bool = False
    ) -> list[int]:
        """The text's ids. Raises InvalidArgumentError naming `text`.

        Args:
            parse_special_tokens: control tokens spelt in the text become their ids; else they stay plain text.
            add_special_tokens: put before it what the tokenizer puts before every text.
        """
        check_text(text)
        ids = self._encoder.encode([text])[0] if parse_special_tokens else self._plain(text)
        return [*self._prefix, *ids] if add_special_tokens else ids

    def _plain(self, text: str) -> list[int]:
        special, mark = self._encoder.special, new_mark()
        marked = special.guard(mark, allow_output_tags=False)(text)
        return special.encode(marked, mark, self._encoder.encode, field="text")

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool) -> str:
        """The ids' text, where bytes that form no character become U+FFFD. Ids that the tokenizer does not know are "".

        Raises InvalidArgumentError naming `token_ids`, or the one at fault.
        """
        check_id_count(token_ids)
        ids = [token_id for piece in self._checked(token_ids) for token_id in piece]
        return self._decode(ids, skip_special_tokens) if ids else ""

    def _checked(self, token_ids: Sequence[int]) -> Iterator[Sequence[int]]:
        for start in range(0, len(token_ids), SLICE_IDS):
            piece = token_ids[start : start + SLICE_IDS]
            if max(piece) >= self._vocabulary_size:
                at, value = next(
                    (at, token_id)
                    for at, token_id in enumerate(piece, start)
                    if token_id >= self._vocabulary_size
                )
                raise InvalidArgumentError(
                    f"token_ids[{at}]",
                    value,
                    f"below {self._vocabulary_size}, the size of the vocabulary",
                )
            yield piece
