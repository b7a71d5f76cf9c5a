"""Random chats, as a session has them: new messages, and answers as a model might sample them."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from services.tokenizer.conversation import Answer, Conversation, Image, Message, Role, Text
from services.tokenizer.model import Model
from services.tokenizer.model_folder import ModelFolder
from services.tokenizer.renderer import Prompt

TEXTS = (
    "打开设置，然后",
    "tap 'Wi-Fi'",
    "😀👩‍👩‍👧",
    " ",
    "\n\n",
    "\n",
    "é中",
    "0123",
    "<|us",
    "er|>",
    "<|user|>",
    "<|im_end|>\n<|im_start|>user",
    "<|image|>",
    "</answer>",
    "<think>",
    "/nothink",
    "<",
    "question",
)
TAGS = ("<think>", "</think>", "<answer>", "<|begin_of_box|>", "<|end_of_box|>")


@dataclass(frozen=True)
class Said:
    """An answer, and how it reads in a history."""

    answer: Answer
    text: str


class Chats:
    """Makes chats for one model.

    Args:
        pictures: encoded images that user messages may have.
        end_tags_stay: of the model's settings.
    """

    def __init__(
        self,
        model: Model,
        folder: ModelFolder,
        pictures: Sequence[bytes],
        end_tags_stay: bool = True,
    ) -> None:
        self._model, self._folder, self._pictures = model, folder, pictures
        self._end_tags_stay = end_tags_stay

    def text(self, chance: random.Random) -> str:
        """What a user or a model might write."""
        pieces = chance.choice((0, 1, 2, 5, 40)) if chance.random() < 0.9 else 200
        return "".join(chance.choices(TEXTS, k=pieces))

    def messages(self, chance: random.Random, first: bool) -> list[Message]:
        """A turn's."""
        messages = []
        if chance.random() < (0.5 if first else 0.1):
            messages.append(Message(Role.SYSTEM, self.text(chance)))
        for _ in range(chance.choice((1, 1, 1, 2))):
            parts: list[Text | Image] = [
                Text(self.text(chance)) for _ in range(chance.choice((1, 1, 2)))
            ]
            if self._pictures and chance.random() < 0.2:
                picture = Image("image", chance.choice(self._pictures))
                parts.insert(chance.randrange(len(parts) + 1), picture)
            whole = chance.random() < 0.5
            messages.append(Message(Role.USER, self.text(chance) if whole else parts))
        if first:  # a conversation must have some content
            messages.append(Message(Role.USER, "Hi"))
        return messages

    def said(self, chance: random.Random) -> Said:
        """An answer: its text spelt character by character, or by longer tokens, with tags and strays among it."""
        ids: list[int] = []
        text = ""
        for _ in range(chance.choice((0, 1, 3, 8))):
            kind = chance.random()
            if kind < 0.25:
                tag = chance.choice(TAGS)
                ids.append(self._folder.control[tag])
                text += tag
            elif kind < 0.3:
                ids.append(self._folder.control[chance.choice(("<|image|>", "[gMASK]"))])
            else:
                piece = chance.choice(TEXTS)
                ids += self._spelt(chance, piece)
                text += piece
        stop = ""
        if chance.random() < 0.3 and text:
            start = chance.randrange(len(text))
            stop = text[start : start + chance.choice((1, 2, 5))]
            seen = text.replace("<|begin_of_box|>", "").replace("<|end_of_box|>", "")
            if stop not in seen or text.find(stop) != seen.find(stop):
                stop = ""
        if stop:
            return Said(Answer("continuation", ids, stop), text[: text.find(stop)])
        if chance.random() < 0.4 and not text.endswith("</answer>"):
            ids += chance.choice(
                ([self._folder.control["</answer>"]], self._spelt(chance, "</answer>"))
            )
            text += "</answer>" if self._end_tags_stay else ""
        elif text.endswith("</answer>") and not self._end_tags_stay:
            text = text.removesuffix("</answer>")
        if chance.random() < 0.5:
            ids.append(
                chance.choice(sorted(self._folder.end_ids - {self._folder.control["</answer>"]}))
            )
        return Said(Answer("continuation", ids), text)

    def _spelt(self, chance: random.Random, text: str) -> list[int]:
        plain = self._model.plain
        assert plain is not None
        if chance.random() < 0.5:
            return plain.encode(text)
        return [one for character in text for one in plain.encode(character)]


@dataclass
class Composed:
    """A prompt put together from pieces, beside the messages that it stands for."""

    model: Model
    ids: list[int]
    features: list[tuple[bytes, int]]
    """Digest and offset of each."""
    messages: list[Message]

    def go_on(self, said: Said | None, messages: Sequence[Message], thinks: bool | None) -> Prompt:
        """The next turn, after an answer if there was one."""
        new = Conversation(
            messages, enable_thinking=thinks, after=said.answer if said is not None else None
        )
        prompt = self.model.renderer.render(new)
        assert not prompt.whole_needed
        if said is not None:
            self.ids += said.answer.token_ids[: prompt.answer_token_count]
        self.features += [
            (placement.feature.feature_digest, placement.offset + len(self.ids))
            for placement in prompt.placements
        ]
        self.ids += prompt.token_ids
        self.messages += messages
        return prompt
