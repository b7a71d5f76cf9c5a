"""Log-probabilities of text completions, in OpenAI's older shape: four lists side by side."""

import codecs
from collections.abc import Sequence

import msgspec

from services.gateway.events import PositionLogprobs, TokenLogprob
from services.gateway.openai_logprobs import LEAST


class LegacyLogprobs(msgspec.Struct):
    """`choices[].logprobs`: one entry of each list for each token."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]
    """Characters of the choice's text before the token."""


class LogprobWriter:
    """Turns the places of one choice into that shape, piece by piece.

    Args:
        offset: characters of the text before the first piece.
    """

    def __init__(self, offset: int = 0) -> None:
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = offset

    def piece(self, positions: Sequence[PositionLogprobs]) -> LegacyLogprobs:
        """What stands beside the text that these places became."""
        made = LegacyLogprobs([], [], [], [])
        for position in positions:
            sampled = position.sampled
            # The sampled one is always among them, also where it is not one of the likeliest.
            top = {_spelling(token): _finite(token) for token in (*position.top, sampled)}
            made.tokens.append(_spelling(sampled))
            made.token_logprobs.append(_finite(sampled))
            made.top_logprobs.append(top)
            made.text_offset.append(self._offset)
            self._offset += len(self._characters.decode(sampled.token))
        return made


def joined(pieces: Sequence[LegacyLogprobs]) -> LegacyLogprobs:
    """The pieces of one choice, in order, as one."""
    whole = LegacyLogprobs([], [], [], [])
    for piece in pieces:
        whole.tokens += piece.tokens
        whole.token_logprobs += piece.token_logprobs
        whole.top_logprobs += piece.top_logprobs
        whole.text_offset += piece.text_offset
    return whole


def _spelling(token: TokenLogprob) -> str:
    """Its text, or its bytes as OpenAI writes what is no text by itself: `bytes:\\xe2\\x80`."""
    try:
        return token.token.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.token)


def _finite(token: TokenLogprob) -> float:
    # In this order, what is no number at all is the least too.
    return token.logprob if token.logprob > LEAST else LEAST
