"""A conversation to a prompt: token ids, and the features that stand in them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from services.runtime.errors import InvalidArgumentError
from services.tokenizer.content import ContentLayout
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


@dataclass(frozen=True)
class TextEncoder:
    """How a model's prompts become ids."""

    encode: Callable[[list[str]], list[list[int]]]
    """Ids of each of several texts, without any additions of the tokenizer's own."""
    special: SpecialText


class Renderer:
    """Renders conversations for one model. Thread-safe; runs in a pool, never on an event loop."""

    def __init__(
        self,
        template: ChatTemplate,
        layout: ContentLayout,
        encoder: TextEncoder,
        thinking: Thinking,
        vision: Vision | None,
        limits: tuple[ConversationLimits, MediaLimits],
    ) -> None:
        self._template, self._layout, self._encoder = template, layout, encoder
        self._thinking, self._vision = thinking, vision
        self._limits, self._media_limits = limits

    @property
    def sees_images(self) -> bool:
        """Whether images may be rendered at all."""
        return self._vision is not None

    def render(self, conversation: Conversation) -> Prompt:
        """Render one conversation. Raises InvalidArgumentError and InvalidMediaError naming the part."""
        check(conversation, self._limits)
        mark = new_mark()
        messages = [self._lay(message, mark) for message in conversation.messages]
        guard = self._encoder.special.guard(mark, allow_output_tags=False)
        variables: dict[str, Any] = guard(dict(conversation.variables or {}))
        shown = () if conversation.hides_tools else conversation.tools
        tools: list[dict[str, Any]] = [guard(tool) for tool in shown]
        suffix = self._switch_thinking(conversation.enable_thinking, variables)
        text = self._template.render(messages, variables, tools)
        tail = self._template.generation_prompt(text, messages, variables, tools) + suffix
        ids = self._encoder.special.encode(text + suffix, mark, self._encoder.encode)
        images = [image for message in conversation.messages for image in message.images()]
        ids, placements = self._place(ids, images)
        return Prompt(ids, placements, self._is_closed(tail))

    def _lay(self, message: Message, mark: str) -> dict[str, Any]:
        allow = message.role is Role.ASSISTANT
        return self._layout.message(message, self._encoder.special.guard(mark, allow))

    def _switch_thinking(self, enable: bool | None, variables: dict[str, Any]) -> str:
        """Set the template's switch, or return what to put after the generation prompt instead."""
        if enable is None:
            enable = variables.get("enable_thinking")
        if self._thinking.no_think_prefix is not None:
            variables.pop("enable_thinking", None)
            return self._thinking.no_think_prefix if enable is False else ""
        if enable is not None:
            variables["enable_thinking"] = enable
        return ""

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
