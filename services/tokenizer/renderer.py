"""A conversation to a prompt: token ids, and the features that stand in them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from services.runtime.errors import InvalidArgumentError
from services.tokenizer.content import ContentLayout
from services.tokenizer.continuation import Continuations, Following
from services.tokenizer.continuation_proof import ContinuationProof
from services.tokenizer.conversation import (
    Conversation,
    ConversationLimits,
    Image,
    Message,
    Role,
    check,
)
from services.tokenizer.data_url import read_data_url
from services.tokenizer.features import Feature, Placement, image_feature, media_digest
from services.tokenizer.media import MediaLimits, decode_image
from services.tokenizer.past_answer import KeptAnswer, PastAnswers
from services.tokenizer.pixels import PatchCutter
from services.tokenizer.special_text import SpecialText, new_mark
from services.tokenizer.template import ChatTemplate


@dataclass(frozen=True)
class Prompt:
    """A rendered prompt."""

    token_ids: Sequence[int]
    placements: Sequence[Placement]
    """In rising offset; the ranges do not overlap."""
    thinking_closed: bool
    """The prompt ends inside the answer."""
    answer_token_count: int = 0
    """After an answer: so many of its ids stay in front."""
    whole_needed: bool = False
    """Nothing was rendered, since what follows an answer depends on what came before it."""
    answer_prefix: str = ""
    """What the prompt's end says already in the model's name."""


@dataclass(frozen=True)
class Vision:
    """How a model sees."""

    cutter: PatchCutter
    placeholder_id: int
    """The token that stands for a piece of an image."""


@dataclass(frozen=True)
class Thinking:
    """How a model thinks, and how it is told not to."""

    tags: tuple[str, str]
    no_think_prefix: str | None
    """None: the template's own switch."""

    def switch(self, enable: bool | None, variables: dict[str, Any]) -> str:
        """Set the template's switch, or return what to put after the generation prompt instead."""
        if enable is None:
            enable = variables.get("enable_thinking")
        if self.no_think_prefix is not None:
            variables.pop("enable_thinking", None)
            return self.no_think_prefix if enable is False else ""
        if enable is not None:
            variables["enable_thinking"] = enable
        return ""


@dataclass(frozen=True)
class TextEncoder:
    """How a model's prompts become ids."""

    encode: Callable[[list[str]], list[list[int]]]
    """Ids of each of several texts, without any additions of the tokenizer's own."""
    special: SpecialText


@dataclass(frozen=True)
class History:
    """How a model's conversations go on after its answers."""

    answers: PastAnswers
    continuations: Continuations
    proof: ContinuationProof


class Renderer:
    """Renders conversations for one model. Thread-safe; runs in a pool, never on an event loop."""

    def __init__(
        self,
        template: ChatTemplate,
        layout: ContentLayout,
        encoder: TextEncoder,
        thinking: Thinking,
        vision: Vision | None,
        history: History,
        limits: tuple[ConversationLimits, MediaLimits],
    ) -> None:
        self._template, self._layout, self._encoder = template, layout, encoder
        self._thinking, self._vision, self._history = thinking, vision, history
        self._limits, self._media_limits = limits

    @property
    def sees_images(self) -> bool:
        """Whether images may be rendered at all."""
        return self._vision is not None

    @property
    def goes_on(self) -> bool:
        """Whether what follows an answer can be rendered alone, with and without tools; found out once."""
        held = self._history.proof.holds({}, uses_tools=False)
        return self._history.proof.holds({}, uses_tools=self._limits.has_tools) and held

    def render(self, conversation: Conversation) -> Prompt:
        """Render one conversation, or what of it follows an answer. Raises InvalidArgumentError and InvalidMediaError naming the part."""
        conversation = self._with_past_answers(conversation)
        check(conversation, self._limits)
        kept = KeptAnswer(0, "", "")
        if conversation.after is not None:
            kept = self._history.answers.keep(conversation.after)
        mark = new_mark()
        messages = [self._lay(message, mark) for message in conversation.messages]
        guard = self._encoder.special.guard(mark, allow_output_tags=False)
        variables: dict[str, Any] = guard(dict(conversation.variables or {}))
        shown = () if conversation.hides_tools else conversation.tools
        tools: list[dict[str, Any]] = [guard(tool) for tool in shown]
        suffix = self._thinking.switch(conversation.enable_thinking, variables)
        if conversation.after is None:
            text = self._template.render(messages, variables, tools)
            tail = self._template.generation_prompt(text, messages, variables, tools) + suffix
        else:
            following = self._following(conversation, messages, variables, tools)
            if following is None:
                return Prompt((), (), thinking_closed=False, whole_needed=True)
            text = self._encoder.special.guard(mark, True)(kept.rest) + following.text
            tail = following.generation_prompt + suffix
        ids = self._encoder.special.encode(text + suffix, mark, self._encoder.encode)
        images = [image for message in conversation.messages for image in message.images()]
        ids, placements = self._place(ids, images)
        return Prompt(
            ids,
            placements,
            self._is_closed(tail),
            answer_token_count=kept.id_count,
            answer_prefix=self._history.continuations.answer_prefix(tail),
        )

    def _lay(self, message: Message, mark: str) -> dict[str, Any]:
        allow = message.role is Role.ASSISTANT
        return self._layout.message(message, self._encoder.special.guard(mark, allow))

    def _with_past_answers(self, conversation: Conversation) -> Conversation:
        messages = list(conversation.messages)
        for past in conversation.past_answers:
            text = past.prefix + self._history.answers.keep(past.answer).text
            messages[past.message_index] = replace(messages[past.message_index], content=text)
        return replace(conversation, messages=messages, past_answers=())

    def _following(
        self,
        conversation: Conversation,
        messages: Sequence[dict[str, Any]],
        variables: dict[str, Any],
        tools: Sequence[dict[str, Any]],
    ) -> Following | None:
        """What follows an answer; None where the whole is needed."""
        uses_tools = bool(tools) or any(
            message.role is Role.TOOL or message.tool_calls for message in conversation.messages
        )
        if not self._history.proof.holds(conversation.variables or {}, uses_tools):
            return None
        return self._history.continuations.after_answer(messages, variables, tools)

    def _is_closed(self, generation_prompt: str) -> bool:
        opening, closing = self._thinking.tags
        return generation_prompt.rfind(closing) > generation_prompt.rfind(opening)

    def _place(
        self, ids: list[int], images: Sequence[Image]
    ) -> tuple[list[int], Sequence[Placement]]:
        """Repeat each image's placeholder as often as the image has pieces."""
        if not images:
            return ids, ()
        if self._vision is None:
            raise InvalidArgumentError(images[0].field, "image", "text: this model sees no images")
        placeholder = self._vision.placeholder_id
        positions = [index for index, token_id in enumerate(ids) if token_id == placeholder]
        if len(positions) != len(images):
            raise InvalidArgumentError(
                "messages",
                f"{len(images)} images",
                f"a conversation whose images the model's template shows (it shows {len(positions)})",
            )
        features = self._features(images, self._vision.cutter)
        placed: list[int] = []
        placements: list[Placement] = []
        start = 0
        for position, (feature, digest) in zip(positions, features, strict=True):
            placed += ids[start:position]
            placements.append(Placement(feature, digest, len(placed)))
            placed += [placeholder] * feature.patches.token_count
            start = position + 1
        return placed + ids[start:], placements

    def _features(
        self, images: Sequence[Image], cutter: PatchCutter
    ) -> list[tuple[Feature, bytes]]:
        """Each image's feature and media digest; the same bytes are decoded once."""
        known: dict[bytes, Feature] = {}
        features = []
        for image in images:
            data = image.source
            if isinstance(data, str):
                data = read_data_url(data, image.field, self._media_limits.max_bytes)
            digest = media_digest(data)
            if digest not in known:
                rgb = decode_image(data, image.field, self._media_limits)
                known[digest] = image_feature(cutter.cut(rgb, image.field))
            features.append((known[digest], digest))
        return features
