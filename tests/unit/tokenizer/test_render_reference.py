"""Rendered prompts are those of transformers' own processor of the same folder."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from PIL import Image as Picture
from tokenizer_kit import Encoded, RenderIds, examples

from services.runtime.digest import feature_digest
from services.tokenizer.conversation import Conversation, Image, Message, Role, Text
from services.tokenizer.model import Model
from services.tokenizer.model_folder import ModelFolder

WORDS = [
    *("Hi", "the", "screen", "tap", "<", ">", "a<b", "|", "[x]", "/", "//", "<p>", "&amp;", "{}"),
    *("红色按钮", "在屏幕的底部", "，", "。", "你好", "我要点击它", "微信", "「」", "３"),
    *(
        "👍",
        "👨‍👩‍👧",
        "🏳️‍🌈",
        "𠮷",
        "é",
        "e\u0301",
        "\u200b",
        "\t",
        "\n",
        "\n\n",
        "  ",
        "0",
        "12345",
    ),
    *('do(action="Tap", element=[500,750])', "http://a.b/c?d=1", "\r\n", "\\n", "'", '"'),
]


def reference_ids(processor: Any, messages: list[dict[str, Any]], **options: Any) -> list[int]:
    made = processor.apply_chat_template(
        messages, tokenize=True, return_dict=True, add_generation_prompt=True, **options
    )
    ids: list[int] = made["input_ids"][0]
    return ids


def ordinary_chat(rng: random.Random) -> list[tuple[Role, str]]:
    def text() -> str:
        return "".join(rng.choice(WORDS) + rng.choice(["", " "]) for _ in range(rng.randint(0, 12)))

    chat = [(Role.SYSTEM, text())] if rng.random() < 0.5 else []
    for _ in range(rng.randint(0, 3)):
        answer = text()
        if rng.random() < 0.6:
            answer = f"<think>{text()}</think>\n<answer>{answer}</answer>"
        chat += [(Role.USER, text()), (Role.ASSISTANT, answer)]
    return [*chat, (Role.USER, "q" + text())]


def assert_chats_equal_the_reference(
    processor: Any, render_ids: RenderIds, seed: int, count: int
) -> None:
    rng = random.Random(seed)
    for _ in range(count):
        chat = ordinary_chat(rng)
        as_list = rng.random() < 0.5
        ours = [(role, [Text(text)] if as_list else text) for role, text in chat]
        parts = [{"role": r.value, "content": [{"type": "text", "text": t}]} for r, t in chat]
        plain = [{"role": r.value, "content": t} for r, t in chat]
        assert render_ids(*ours) == reference_ids(processor, parts if as_list else plain), chat


def test_ids_of_three_thousand_ordinary_chats_equal_the_reference(
    processor: Any, render_ids: RenderIds
) -> None:
    assert_chats_equal_the_reference(processor, render_ids, seed=1, count=3_000)


@pytest.mark.slow
def test_ids_of_ten_thousand_ordinary_chats_equal_the_reference(
    processor: Any, render_ids: RenderIds
) -> None:
    assert_chats_equal_the_reference(processor, render_ids, seed=2, count=10_000)


@given(texts=st.lists(st.text(max_size=30), min_size=2, max_size=4))
@examples(300)
def test_ids_of_any_text_without_control_tokens_equal_the_reference(
    processor: Any, folder: ModelFolder, render_ids: RenderIds, texts: list[str]
) -> None:
    assume("".join(texts) and not any(spelling in "".join(texts) for spelling in folder.control))
    ours = render_ids((Role.SYSTEM, texts[0]), (Role.USER, [Text(text) for text in texts[1:]]))
    parts = [{"type": "text", "text": text} for text in texts[1:]]
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": texts[0]},
        {"role": "user", "content": parts},
    ]
    assert ours == reference_ids(processor, messages)


@pytest.mark.parametrize(
    ("enable", "prefix"),
    [
        pytest.param(None, "", id="the-model-s-habit"),
        pytest.param(True, "", id="on"),
        pytest.param(False, "<think></think>\n", id="off"),
    ],
)
def test_thinking_is_switched_as_the_template_does_it(
    processor: Any, folder: ModelFolder, render_ids: RenderIds, enable: bool | None, prefix: str
) -> None:
    options = {} if enable is None else {"enable_thinking": enable}
    ids = render_ids((Role.USER, "q"), enable_thinking=enable)
    assert ids == reference_ids(processor, [{"role": "user", "content": "q"}], **options)
    assert folder.backend.decode(ids, skip_special_tokens=False).endswith(
        f"<|assistant|>\n{prefix}"
    )


def screenshot(width: int, height: int, seed: int = 0) -> Picture.Image:
    rng = np.random.default_rng(seed)
    return Picture.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.mark.parametrize(
    ("width", "height"),
    [
        pytest.param(1080, 2400, id="phone"),
        pytest.param(26, 28, id="case-4-26x28"),
        pytest.param(332, 27, id="case-4-332x27"),
        pytest.param(500, 19, id="case-4-500x19"),
        pytest.param(1, 1, id="case-4-1x1"),
        pytest.param(150, 1, id="case-4-height-1"),
        pytest.param(4, 700, id="tall"),
        pytest.param(5600, 28, id="ratio-of-exactly-200"),
    ],
)
def test_ids_and_pixels_of_a_screenshot_equal_the_reference(
    model: Model, processor: Any, encoded: Encoded, width: int, height: int
) -> None:
    picture = screenshot(width, height)
    content: list[Text | Image] = [Image("0", encoded(picture)), Text("tap it")]
    prompt = model.renderer.render(Conversation([Message(Role.USER, content)]))
    parts = [{"type": "image", "image": picture}, {"type": "text", "text": "tap it"}]
    made = processor.apply_chat_template(
        [{"role": "user", "content": parts}],
        tokenize=True,
        return_dict=True,
        add_generation_prompt=True,
        processor_kwargs={"images_kwargs": {"input_data_format": "channels_first"}},
    )
    assert list(prompt.token_ids) == made["input_ids"][0]
    patches = prompt.placements[0].feature.patches
    assert list(patches.grid) == made["image_grid_thw"][0].tolist()
    assert np.array_equal(normalised(processor, patches), made["pixel_values"].numpy())


def normalised(processor: Any, patches: Any) -> Any:
    """What the engine makes of our bytes: the temporal frame doubled, then rescaled and normalised."""
    import torch

    kind = processor.image_processor
    single = torch.frombuffer(bytearray(patches.data), dtype=torch.uint8).view(patches.shape)
    double = single.view(len(single), 3, 1, -1).expand(-1, -1, kind.temporal_patch_size, -1)
    mean, std = (
        torch.tensor(values).view(1, 3, 1, 1) * (1.0 / kind.rescale_factor)
        for values in (kind.image_mean, kind.image_std)
    )
    return ((double.float() - mean) / std).reshape(len(single), -1).numpy()


def test_two_images_stand_where_their_placements_say(
    model: Model, folder: ModelFolder, encoded: Encoded
) -> None:
    files = [encoded(screenshot(100, 300, seed)) for seed in (1, 2)]
    content: list[Text | Image] = [
        Text("a"),
        Image("0", files[0]),
        Text("b"),
        Image("1", files[1]),
        Text("c"),
    ]
    prompt = model.renderer.render(Conversation([Message(Role.USER, content)]))
    covered = [
        index
        for placement in prompt.placements
        for index in range(
            placement.offset, placement.offset + placement.feature.patches.token_count
        )
    ]
    ids = list(prompt.token_ids)
    assert covered == [at for at, token_id in enumerate(ids) if token_id == folder.image_token_id]
    assert prompt.placements[0].offset < prompt.placements[1].offset


def test_case_10_two_images_of_one_size_have_two_digests(model: Model, encoded: Encoded) -> None:
    content = [Image(str(seed), encoded(screenshot(90, 90, seed))) for seed in (1, 2)]
    first, second = model.renderer.render(Conversation([Message(Role.USER, content)])).placements
    assert first.feature.feature_digest != second.feature.feature_digest
    assert first.media_digest != second.media_digest
    assert first.feature.patches.grid == second.feature.patches.grid


def test_a_feature_s_digest_is_the_one_that_workers_verify(model: Model, encoded: Encoded) -> None:
    content = [Image("0", encoded())]
    placement = model.renderer.render(Conversation([Message(Role.USER, content)])).placements[0]
    patches = placement.feature.patches
    t, h, w = patches.grid
    assert patches.shape == (t * h * w, 3 * 14 * 14)
    assert len(patches.data) == patches.shape[0] * patches.shape[1]
    assert placement.feature.feature_digest == feature_digest(
        1, 1, patches.shape, patches.grid, patches.data
    )
