"""Token ids to text, id by id, never half a character."""

import codecs
import json
import re
from collections.abc import Collection
from typing import Any, Protocol

_BYTE_FALLBACK = re.compile("<0x([0-9A-F]{2})>")
"""How tokenizers that are not byte-level spell single bytes."""


class TextDecoder(Protocol):
    """The decoding of one text."""

    @property
    def is_inside_character(self) -> bool:
        """Whether bytes wait for the rest of their character."""

    def push(self, token_id: int) -> str:
        """Text that is complete now; "" where the id ends inside a character, is special or unknown."""

    def push_text(self, text: str) -> str:
        """The same for a token given by its spelling (an end token that is to be shown)."""

    def flush(self) -> str:
        """What is left: an unfinished character becomes U+FFFD. Nothing may be pushed after."""


class Detokeniser:
    """Decoders for one tokenizer. Concatenated, their texts equal the tokenizer's own decoding of all ids.

    Args:
        backend: a tokenizers.Tokenizer.
        special_ids: ids that are left out.
    """

    def __init__(self, backend: Any, special_ids: Collection[int]) -> None:
        self._backend, self._special = backend, frozenset(special_ids)
        self._bytes = _byte_table(backend) if _is_byte_level(backend) else None

    def open(self, show_special: bool = False) -> TextDecoder:
        """A decoder for one text.

        Args:
            show_special: leave nothing out.
        """
        special = frozenset[int]() if show_special else self._special
        if self._bytes is not None:
            return ByteDecoder(self._bytes, special)
        return StreamDecoder(self._backend, special)

    def has_text(self, token_id: int) -> bool:
        """Whether a decoder makes anything of it."""
        return token_id not in self._special and bool(self.token_bytes(token_id))

    def token_bytes(self, token_id: int) -> bytes:
        """A token's bytes, which need not be characters by themselves; those of a special one are its spelling."""
        if self._bytes is not None:
            return self._bytes[token_id] if token_id < len(self._bytes) else b""
        spelling = self.spelling(token_id)
        byte = _BYTE_FALLBACK.fullmatch(spelling)
        return bytes((int(byte[1], 16),)) if byte else spelling.replace("▁", " ").encode()

    def spelling(self, token_id: int) -> str:
        """A token as the vocabulary writes it; "" for an unknown one."""
        spelling: str | None = self._backend.id_to_token(token_id)
        return spelling or ""


class ByteDecoder:
    """For byte-level tokenizers: the tokens' bytes through an incremental UTF-8 decoder."""

    def __init__(self, table: list[bytes], special: frozenset[int]) -> None:
        self._table, self._special = table, special
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def is_inside_character(self) -> bool:
        """See TextDecoder."""
        return bool(self._utf8.getstate()[0])

    def push(self, token_id: int) -> str:
        """See TextDecoder."""
        if token_id in self._special or token_id >= len(self._table):
            return ""
        return self._utf8.decode(self._table[token_id])

    def push_text(self, text: str) -> str:
        """See TextDecoder."""
        return self._utf8.decode(text.encode())

    def flush(self) -> str:
        """See TextDecoder."""
        return self._utf8.decode(b"", final=True)


class StreamDecoder:
    """For any other tokenizer: tokenizers' DecodeStream, which holds back until a decoding is stable."""

    def __init__(self, backend: Any, special: frozenset[int]) -> None:
        self._backend, self._special = backend, special
        self._ids: list[int] = []
        self.is_inside_character = False
        """See TextDecoder."""
        self._restart()

    def push(self, token_id: int) -> str:
        """See TextDecoder."""
        if token_id in self._special:
            return ""
        self._ids.append(token_id)
        text = self._stream.step(self._backend, token_id) or ""
        self._shown += len(text)
        self.is_inside_character = not text
        return text

    def push_text(self, text: str) -> str:
        """See TextDecoder."""
        rest = self.flush()
        self._restart()
        return rest + text

    def flush(self) -> str:
        """See TextDecoder."""
        whole: str = self._backend.decode(self._ids, skip_special_tokens=False)
        return whole[self._shown :]

    def _restart(self) -> None:
        from tokenizers.decoders import DecodeStream

        self._stream = DecodeStream(skip_special_tokens=False)
        self._ids.clear()
        self._shown = 0
        self.is_inside_character = False


def _is_byte_level(backend: Any) -> bool:
    decoder = json.loads(backend.to_str()).get("decoder") or {}
    kinds = [part.get("type") for part in decoder.get("decoders", [decoder])]
    return kinds == ["ByteLevel"]


def _byte_table(backend: Any) -> list[bytes]:
    alphabet = _byte_level_alphabet()
    vocabulary: dict[str, int] = backend.get_vocab(with_added_tokens=True)
    table = [b""] * (max(vocabulary.values()) + 1)
    for token, token_id in vocabulary.items():
        try:
            table[token_id] = bytes(alphabet[character] for character in token)
        except KeyError:  # an added token with other characters stands for itself
            table[token_id] = token.encode()
    return table


def _byte_level_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for bytes (openai/gpt-2, src/encoder.py, bytes_to_unicode)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(256 + index): byte for index, byte in enumerate(others)}
