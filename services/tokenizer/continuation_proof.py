"""Whether what follows an answer is the same with and without what came before it, found out by trying."""

import json
import random
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from services.runtime.errors import InvalidArgumentError
from services.tokenizer.content import ContentLayout
from services.tokenizer.continuation import Continuations
from services.tokenizer.conversation import Image, Message, Role, Text
from services.tokenizer.template import ChatTemplate

Switch: TypeAlias = Callable[[bool | None, dict[str, Any]], str]
"""Sets the template's variables so that the model thinks or not; returns what to put after the generation prompt."""

CONVERSATIONS, TURNS = 24, 5
"""Tried for one set of variables: some 10 ms."""
MAX_KNOWN = 64
"""Sets of variables whose outcome is remembered; of more, the oldest are forgotten."""
MAX_VALUE_CHARACTERS = 64
"""Longer values of variables, and structured ones, are not tried: then the whole is rendered."""

_TEXTS = (
    "Hi",
    "",
    "打开设置 😀",
    " two\n\nlines \n",
    "<b>&amp; 'quoted' \"twice\"</b>",
    "{{ 7 * 7 }}",
)
_TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks.",
        "parameters": {"type": "object", "properties": {"where": {"type": "string"}}},
    },
}


class _Kind(Enum):
    """Some templates refuse all but the plainest."""

    ALTERNATING = 0
    """User and assistant in turn."""
    USUAL = 1
    """With a system prompt before the first turn."""
    ANY = 2


@dataclass(frozen=True)
class _Options:
    variables: Mapping[str, Any]
    uses_tools: bool


class ContinuationProof:
    """Tries random conversations of several turns, each rendered whole and piece by piece. Thread-safe.

    Args:
        encode: ids of a text in which control tokens count.
        sees_images: whether conversations may have images.
        think_tags: of the model.
    """

    def __init__(
        self,
        template: ChatTemplate,
        layout: ContentLayout,
        continuations: Continuations,
        switch: Switch,
        encode: Callable[[str], Sequence[int]],
        sees_images: bool,
        think_tags: tuple[str, str],
    ) -> None:
        self._template, self._layout, self._continuations = template, layout, continuations
        self._switch, self._encode, self._sees_images = switch, encode, sees_images
        opening, closing = think_tags
        self._answers = (
            *_TEXTS,
            f"{opening}so{closing}done",
            f"{opening}\nso\n{closing}\n\ndone\n",
            f"{opening}unfinished",
            f"so{closing}done",
            f"{opening}{closing}",
        )
        self._known: OrderedDict[str, bool] = OrderedDict()
        self._lock = threading.Lock()

    def holds(self, variables: Mapping[str, Any], uses_tools: bool) -> bool:
        """Whether pieces may be put together under these template variables.

        Args:
            uses_tools: tools are shown, or messages have to do with some.
        """
        # Switched on and off from turn to turn in any case.
        read = {
            name: value
            for name, value in variables.items()
            if name != "enable_thinking" and self._template.mentions(name)
        }
        if not all(map(_is_small, read.values())):
            return False
        key = json.dumps([read, uses_tools], sort_keys=True)
        with self._lock:
            if key in self._known:
                return self._known[key]
        held = self._try(_Options(read, uses_tools))
        with self._lock:
            self._known[key] = held
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
        return held

    def _try(self, options: _Options) -> bool:
        chance = random.Random(5)  # the same at every start  # noqa: S311
        tried = 0
        for number in range(CONVERSATIONS):
            for same in self._conversation(chance, options, _Kind(number % len(_Kind))):
                if not same:
                    return False
                tried += 1
        return tried >= CONVERSATIONS // 2

    def _conversation(
        self, chance: random.Random, options: _Options, kind: _Kind
    ) -> Iterator[bool]:
        """Whether each of its turns comes out the same; no more turns once the template refuses the whole."""
        tools = [_TOOL] if options.uses_tools and chance.random() < 0.7 else []
        whole: list[dict[str, Any]] = []
        pieces = ""
        for turn in range(TURNS):
            messages = self._laid(self._messages(chance, turn, options.uses_tools, kind))
            variables = dict(options.variables)
            suffix = self._switch(chance.choice((None, True, False)), variables)
            try:
                text = self._template.render([*whole, *messages], variables, tools) + suffix
            except InvalidArgumentError:
                return
            if turn == 0:
                pieces, tail = text, self._prompt_end(text, suffix, messages, variables, tools)
            else:
                try:
                    following = self._continuations.after_answer(messages, variables, tools)
                except InvalidArgumentError:
                    following = None
                if following is None:
                    yield False
                    return
                last, tail = following.text + suffix, following.generation_prompt + suffix
                yield text == pieces + last and self._is_cut_alike(pieces, last)
                pieces += last
            answer = chance.choice(self._answers)
            said = self._continuations.answer_prefix(tail) + answer
            whole += [*messages, *self._laid([Message(Role.ASSISTANT, said)])]
            pieces += answer

    def _is_cut_alike(self, before: str, behind: str) -> bool:
        together = self._encode(before + behind)
        return list(together) == [*self._encode(before), *self._encode(behind)]

    def _prompt_end(
        self,
        text: str,
        suffix: str,
        messages: Sequence[dict[str, Any]],
        variables: Mapping[str, Any],
        tools: Sequence[dict[str, Any]],
    ) -> str:
        prompt = text.removesuffix(suffix)
        return self._template.generation_prompt(prompt, messages, variables, tools) + suffix

    def _laid(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        return [self._layout.message(message, lambda value: value) for message in messages]

    def _messages(
        self, chance: random.Random, turn: int, uses_tools: bool, kind: _Kind
    ) -> Sequence[Message]:
        messages = []
        likely = 0.1 if turn else 0.9
        if chance.random() < likely and not (
            kind is _Kind.ALTERNATING or (kind is _Kind.USUAL and turn)
        ):
            messages.append(Message(Role.SYSTEM, chance.choice(_TEXTS)))
        if uses_tools and turn and chance.random() < 0.5:
            messages.append(Message(Role.TOOL, chance.choice(_TEXTS), tool_call_id="call-1"))
            if chance.random() < 0.5:
                return messages
        parts: list[Text | Image] = [Text(text := chance.choice(_TEXTS))]
        if self._sees_images and chance.random() < 0.5:
            parts.insert(chance.randrange(2), Image("image", b""))
        messages.append(Message(Role.USER, parts if chance.random() < 0.5 else text))
        if kind is _Kind.ANY and chance.random() < 0.1:
            messages.append(Message(Role.USER, chance.choice(_TEXTS)))
        return messages


def _is_small(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_VALUE_CHARACTERS
    return value is None or isinstance(value, bool | int | float)
