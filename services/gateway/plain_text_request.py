"""The bodies of POST /v1/tokenize and /v1/detokenize, shaped as vLLM's."""

import msgspec

from services.gateway.json_ids import check_ids, read_value
from services.gateway.json_tree import ABSENT
from services.gateway.openai_request import ChatRequest
from services.runtime.errors import InvalidArgumentError


class TokenizeRequest(ChatRequest):
    """A text, or a body of POST /v1/chat/completions, whose prompt is wanted and not its continuation."""

    prompt: str | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    return_token_strs: bool | None = None


class TokenizeAnswer(msgspec.Struct):
    """The ids, and how much of the context they take."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: None = None


class DetokenizeRequest(msgspec.Struct):
    """Token ids; null counts as absent."""

    tokens: msgspec.Raw = ABSENT
    model: str | None = None


class DetokenizeAnswer(msgspec.Struct):
    """Their text, control tokens included."""

    prompt: str


def check(request: TokenizeRequest) -> None:
    """Everything that types alone do not say. Raises InvalidArgumentError."""
    if (request.prompt is None) == (request.messages is None):
        both = request.prompt is not None
        raise InvalidArgumentError(
            "prompt", "both" if both else None, "given where there are no messages, and only there"
        )
    for name, allowed in _ALLOWED.items():
        value = getattr(request, name)
        if value not in (None, allowed):
            raise InvalidArgumentError(name, value, f"{str(allowed).lower()}, or absent")


_ALLOWED = {
    "add_generation_prompt": True,
    "continue_final_message": False,
    "return_token_strs": False,
}
"""vLLM's switches, and the one value that this server knows."""


def token_ids(request: DetokenizeRequest) -> list[int]:
    """The ids. Raises InvalidArgumentError naming `tokens` or one of them."""
    ids: list[int] | None = read_value("tokens", request.tokens, list[int] | None)
    if ids is None:
        raise InvalidArgumentError("tokens", None, "a list of token ids")
    check_ids("tokens", ids)
    return ids
