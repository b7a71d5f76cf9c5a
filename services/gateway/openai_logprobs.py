"""`choices[].logprobs` of chat completions."""

from collections.abc import Sequence

import msgspec

from services.gateway.events import PositionLogprobs, TokenLogprob

LEAST = -9999.0
"""What stands for minus infinity, which JSON has not; OpenAI's own."""


class LikelyToken(msgspec.Struct):
    """One token of `top_logprobs`."""

    token: str
    """Its text; U+FFFD stands for bytes that are a part of a character."""
    logprob: float
    bytes: list[int]


class ShownToken(msgspec.Struct):
    """One token of the content."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[LikelyToken]


class ChoiceLogprobs(msgspec.Struct):
    """Those of one choice, or of what one chunk adds to it."""

    content: Sequence[msgspec.Raw]
    """ShownToken, as JSON: a whole answer keeps them until its end, and they take less room so."""
    refusal: None = None


_encode = msgspec.json.Encoder().encode


def shown_tokens(positions: Sequence[PositionLogprobs]) -> list[msgspec.Raw]:
    """Each as JSON."""
    return [msgspec.Raw(_encode(_shown(position))) for position in positions]


def _shown(position: PositionLogprobs) -> ShownToken:
    sampled = position.sampled
    top = [LikelyToken(_text(one), _finite(one), list(one.token)) for one in position.top]
    return ShownToken(_text(sampled), _finite(sampled), list(sampled.token), top)


def _text(one: TokenLogprob) -> str:
    return one.token.decode(errors="replace")


def _finite(one: TokenLogprob) -> float:
    # In this order, what is no number at all becomes the least, too.
    return one.logprob if one.logprob > LEAST else LEAST
