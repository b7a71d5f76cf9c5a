"""What follows an answer, rendered alone, against rendering the whole."""

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from chats_at_random import Chats, Composed
from PIL import Image as Picture
from template_kit import CHATML, folder_with
from tokenizer_kit import Encoded, Settings

from services.tokenizer.conversation import Conversation, Message, Role
from services.tokenizer.model import Model, load_model
from services.tokenizer.model_folder import ModelFolder, load
from services.tokenizer.renderer import Prompt

Loaded: TypeAlias = tuple[Model, ModelFolder, str, bool]
"""A model, its folder, the control token that begins its turns, and whether end tags stay."""

KINDS: dict[str, dict[str, Any]] = {
    "glm": {},
    "glm-without-end-tags": {"history_end_tags": False},
    "autoglm": {"content_format": "string", "no_think_prefix": "<think></think><answer>"},
}


@pytest.fixture(scope="module")
def pictures(encoded: Encoded) -> Sequence[bytes]:
    return [encoded(Picture.new("RGB", (56 + 28 * size, 56), "red")) for size in range(3)]


@pytest.fixture(scope="module")
def loaded(
    tokenizer_settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Loaded]:
    made: dict[str, Loaded] = {}

    def load_kind(kind: str) -> Loaded:
        if kind not in made:
            values = KINDS.get(kind, {})
            if kind == "chatml":
                values = {"model_path": folder_with(tmp_path_factory.mktemp("chatml"), CHATML)}
            settings = tokenizer_settings(**values)
            folder = load(Path(settings.model_path))
            made[kind] = (load_model(settings), folder, kind, settings.history_end_tags)
        return made[kind]

    return load_kind


def segments(folder: ModelFolder, ids: Sequence[int]) -> list[list[int]]:
    """A prompt, cut before each control token that begins a message."""
    begins = {
        folder.control[name]
        for name in ("<|system|>", "<|user|>", "<|assistant|>", "<|im_start|>")
        if name in folder.control
    }
    cuts = [0, *(at for at, token_id in enumerate(ids) if token_id in begins), len(ids)]
    return [list(ids[start:end]) for start, end in pairwise(cuts)]


def assert_alike(folder: ModelFolder, composed: Composed, whole: Prompt) -> None:
    """Generated messages by their text, all others by their ids, features by digest and by where they stand."""
    made, expected = segments(folder, composed.ids), segments(folder, whole.token_ids)
    assert len(made) == len(expected)
    for ours, theirs in zip(made, expected, strict=True):
        if ours != theirs:
            text = folder.backend.decode(ours, skip_special_tokens=False)
            assert text.startswith(("<|assistant|>\n", "<|im_start|>assistant\n"))
            assert text == folder.backend.decode(theirs, skip_special_tokens=False)
    digests = [placement.feature.feature_digest for placement in whole.placements]
    assert [digest for digest, _ in composed.features] == digests
    placeholder = [folder.image_token_id]
    count = 0
    for (_, offset), placement in zip(composed.features, whole.placements, strict=True):
        length = placement.feature.patches.token_count
        count += length
        assert composed.ids[offset : offset + length] == placeholder * length
    assert composed.ids.count(folder.image_token_id or 0) == count


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("kind", [*KINDS, "chatml"])
def test_random_chats_put_together_equal_rendering_the_whole(
    loaded: Callable[[str], Loaded], pictures: Sequence[bytes], kind: str, part: int
) -> None:
    model, folder, _, end_tags_stay = loaded(kind)
    chats = Chats(model, folder, pictures, end_tags_stay)
    for seed in range(part * 130, (part + 1) * 130):
        chance = random.Random(f"{kind} {seed}")
        composed = Composed(model, [], [], [])
        said = None
        for turn in range(chance.choice((2, 3, 4))):
            messages = chats.messages(chance, first=turn == 0)
            thinks = chance.choice((None, True, False))
            prompt = composed.go_on(said, messages, thinks)
            whole = model.renderer.render(Conversation(composed.messages, enable_thinking=thinks))
            assert_alike(folder, composed, whole)
            assert prompt.thinking_closed == whole.thinking_closed
            assert prompt.answer_prefix == whole.answer_prefix
            said = chats.said(chance)
            composed.messages.append(Message(Role.ASSISTANT, prompt.answer_prefix + said.text))
