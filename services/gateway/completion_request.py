"""The body of POST /v1/completions: prompts are texts or token ids, one or several."""

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from services.gateway import raw_prompt
from services.gateway.json_ids import check_ids, read_value
from services.gateway.json_tree import ABSENT
from services.gateway.parameter import Route
from services.gateway.parameter_body import Parameters, RouteBody, body_of
from services.gateway.renderable import RawPrompt
from services.runtime.errors import InvalidArgumentError

MAX_CHOICES = 16
"""Over all prompts of one request."""
DEFAULT_MAX_TOKENS = 16
"""OpenAI's."""
_Prompt: TypeAlias = str | list[str | int | list[int]]


# A type checker sees what every body has; the parameters' fields are the table's.
if TYPE_CHECKING:
    _Body = RouteBody
else:
    _Body = body_of(Route.COMPLETIONS)


class CompletionRequest(_Body):
    """The whole body. null counts as absent, as in OpenAI's own API."""

    prompt: msgspec.Raw = ABSENT


def check(given: Parameters) -> None:
    """What the parameters' table does not say of text completions. Raises InvalidArgumentError."""
    if given.value("echo"):
        raise InvalidArgumentError("echo", True, "false: a prompt is not repeated in the answer")
    if given.value("suffix"):
        raise InvalidArgumentError(
            "suffix", given.value("suffix"), "empty: nothing is put in before a text"
        )
    choices = given.value("n", 1)
    if given.value("best_of", choices) != choices:
        raise InvalidArgumentError(
            "best_of", given.value("best_of"), f"n, {choices}: every choice that is made is shown"
        )


def read_prompts(raw: msgspec.Raw, add_special_tokens: bool) -> list[RawPrompt]:
    """`prompt`: a text, texts, token ids, or lists of token ids. Takes some 100 ms for the largest.

    Raises InvalidArgumentError naming the one at fault.
    """
    value: _Prompt | None = read_value("prompt", raw, _Prompt | None)
    if value is None:
        raise InvalidArgumentError("prompt", None, "a text, token ids, or a list of either")
    prompts = [RawPrompt(content, add_special_tokens, field) for field, content in _named(value)]
    for prompt in prompts:
        if isinstance(prompt.content, list):
            check_ids(prompt.field, prompt.content)
        raw_prompt.check(prompt)
    return prompts


def _named(value: _Prompt) -> list[tuple[str, Any]]:
    """Each prompt beside its place: a text, or token ids."""
    if isinstance(value, str) or not value:
        return [("prompt", value)]
    kind = type(value[0])
    for index, element in enumerate(value):
        if type(element) is not kind:
            raise InvalidArgumentError(
                f"prompt[{index}]", element, "of one kind with the first: a text, an id, or ids"
            )
    if kind is int:
        return [("prompt", value)]
    if len(value) > MAX_CHOICES:
        raise InvalidArgumentError(
            "prompt", f"{len(value)} prompts", f"at most {MAX_CHOICES} prompts"
        )
    return [(f"prompt[{index}]", prompt) for index, prompt in enumerate(value)]


def check_choice_count(prompt_count: int, choices_each: int) -> None:
    """Raises InvalidArgumentError for more choices than one request may have."""
    if prompt_count * choices_each > MAX_CHOICES:
        raise InvalidArgumentError(
            "n",
            choices_each,
            f"at most {MAX_CHOICES // prompt_count} for {prompt_count} prompts: {MAX_CHOICES} choices in all",
        )
