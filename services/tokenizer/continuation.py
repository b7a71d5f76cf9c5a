"""What a chat template writes behind an answer of the model's when a conversation goes on."""

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.runtime.errors import InvalidArgumentError
from services.tokenizer.template import ChatTemplate


@dataclass(frozen=True)
class Following:
    """A text behind an answer."""

    text: str
    generation_prompt: str
    """Its end, for the model to go on from."""


class Continuations:
    """Renders what follows an answer, without what came before it. Thread-safe.

    A conversation that nobody had is rendered, with the new messages behind it and alone. Where both begin alike, what
    the first has behind the answer is what follows any answer, if the template is one that treats all turns alike;
    continuation_proof.py finds out whether it is.

    Args:
        template: of the model.
        borders: spellings of control tokens at which a prompt may be cut: the ids of what stands before and behind are
            the same alone as together.
    """

    def __init__(self, template: ChatTemplate, borders: Collection[str]) -> None:
        self._template, self._borders = template, tuple(borders)
        self._header = self._plain_header()

    def after_answer(
        self,
        messages: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any],
        tools: Sequence[Mapping[str, Any]],
    ) -> Following | None:
        """What follows, generation prompt included; None where the template does not part it from the answer.

        Raises InvalidArgumentError where the template refuses the messages.
        """
        answer = secrets.token_hex(16)
        before = _stub(answer)
        alone = self._template.render(before, variables, tools, add_generation_prompt=False)
        whole = [*before, *messages]
        text = self._template.render(whole, variables, tools)
        end = alone.find(answer) + len(answer)
        if alone.count(answer) != 1 or text.count(answer) != 1 or text[:end] != alone[:end]:
            return None
        following = text[end:]
        if not following.startswith(self._borders):
            return None
        prompt_end = self._template.generation_prompt(text, whole, variables, tools)
        return Following(following, prompt_end)

    def answer_prefix(self, generation_prompt: str) -> str:
        """What a generation prompt says beyond what stands before every answer in a history."""
        if self._header is None or not generation_prompt.startswith(self._header):
            return ""
        return generation_prompt[len(self._header) :]

    def _plain_header(self) -> str | None:
        """What the template writes before an answer in a history; None where it cannot be told."""
        answer = secrets.token_hex(16)
        before = _stub(answer)
        try:
            question = self._template.render(before[:1], add_generation_prompt=False)
            text = self._template.render([*before, before[0]])
        except InvalidArgumentError:
            return None
        end = text.find(answer)
        return text[len(question) : end] if end >= 0 and text.startswith(question) else None


def _stub(answer: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "question"}, {"role": "assistant", "content": answer}]
