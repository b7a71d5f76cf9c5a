"""The model's chat template, rendered by transformers in its own sandbox."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from services.runtime.errors import InvalidArgumentError
from services.tokenizer.conversation import Role

RESERVED = frozenset(
    {"messages", "add_generation_prompt", "tokenize", "tools", "chat_template", "self"}
)
"""Template variables that a request may not set; `self` is jinja's own argument."""

_RENDERER_PARAMETERS = frozenset(
    {"conversations", "documents", "return_assistant_tokens_mask", "continue_final_message"}
)
"""Names that transformers' renderer takes for itself; as template variables they are ignored."""

_PROBE = ("probe-one", "probe-two")


class ChatTemplate:
    """One compiled chat template. Thread-safe."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.has_tools = re.search(r"\btools\b", source) is not None
        self.list_roles = frozenset(
            role for role in (Role.SYSTEM, Role.USER, Role.ASSISTANT) if self._shows_lists(role)
        )
        """Roles whose content may be a list: the template shows every text part of one.
        (GLM-4.1V's shows only the first part of a system or assistant message.)"""

    def mentions(self, name: str) -> bool:
        """Whether the template has anything to do with a variable of that name."""
        return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", self._source) is not None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        add_generation_prompt: bool = True,
    ) -> str:
        """The prompt's text. Raises InvalidArgumentError where the template itself refuses the conversation."""
        import jinja2
        from transformers.utils.chat_template_utils import render_jinja_template

        chosen = {
            name: value
            for name, value in (variables or {}).items()
            if name not in RESERVED | _RENDERER_PARAMETERS
        }
        try:
            rendered, _ = render_jinja_template(
                conversations=[list(messages)],
                tools=[dict(tool) for tool in tools] or None,
                chat_template=self._source,
                add_generation_prompt=add_generation_prompt,
                **chosen,
            )
        # A template is the model vendor's program: given a conversation or variables it was not written for, it
        # fails with whatever its filters and methods raise.
        except (jinja2.TemplateError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            refusal = str(error)[:200] if isinstance(error, jinja2.TemplateError) else "it failed"
            raise InvalidArgumentError(
                "messages",
                f"{len(messages)} messages",
                f"a conversation that the model's template accepts ({refusal})",
            ) from error
        text: str = rendered[0]
        return text

    def generation_prompt(
        self,
        prompt: str,
        messages: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any],
        tools: Sequence[Mapping[str, Any]],
    ) -> str:
        """The end of `prompt` that the template adds for the model to go on from."""
        without = self.render(messages, variables, tools, add_generation_prompt=False)
        if prompt.startswith(without):
            return prompt[len(without) :]
        differing = (
            at for at, pair in enumerate(zip(prompt, without, strict=False)) if len({*pair}) > 1
        )
        return prompt[next(differing, len(without)) :]

    def _shows_lists(self, role: Role) -> bool:
        message: dict[str, Any] = {
            "role": role.value,
            "content": [{"type": "text", "text": text} for text in _PROBE],
        }
        user: dict[str, Any] = {"role": "user", "content": "probe"}
        messages = {Role.SYSTEM: [message, user], Role.ASSISTANT: [user, message]}
        try:
            text = self.render(messages.get(role, [message]))
        except InvalidArgumentError:
            return False
        return all(probe in text for probe in _PROBE)
