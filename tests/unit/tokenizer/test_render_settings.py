"""What settings change in a render."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Picture
from pydantic import ValidationError
from tokenizer_kit import MODEL_PATH, Encoded, Settings

from services.runtime.errors import InvalidArgumentError
from services.tokenizer.conversation import Conversation, Image, Message, Role, Text, ToolCall
from services.tokenizer.model import Model, load_model
from services.tokenizer.model_folder import ModelFolder
from services.tokenizer.output_text import OutputOptions, OutputText
from services.tokenizer.renderer import Prompt
from services.tokenizer.template import ChatTemplate


def rendered(model: Model, folder: ModelFolder, *messages: Message, **options: Any) -> str:
    prompt = model.renderer.render(Conversation(messages, **options))
    text: str = folder.backend.decode(list(prompt.token_ids), skip_special_tokens=False)
    return text.replace("<|image|>" * 9, "<|image|>")


@pytest.fixture(scope="module")
def string_model(tokenizer_settings: Settings) -> Model:
    return load_model(
        tokenizer_settings(content_format="string", no_think_prefix="<think></think><answer>")
    )


@pytest.fixture(scope="module")
def picture(encoded: Encoded) -> Image:
    return Image("messages[0].content[1]", encoded(Picture.new("RGB", (56, 56))))


def test_format_openai_keeps_the_parts_in_their_order(
    model: Model, folder: ModelFolder, picture: Image
) -> None:
    message = Message(Role.USER, [Text("a"), picture, Text("b")])
    assert rendered(model, folder, message).endswith(
        "<|user|>\na<|begin_of_image|><|image|><|end_of_image|>b<|assistant|>\n"
    )


def test_format_string_moves_images_to_the_front_and_joins_with_newlines(
    string_model: Model, folder: ModelFolder, picture: Image
) -> None:
    message = Message(Role.USER, [Text("a"), picture, Text(""), Text("b"), picture])
    image = "<|begin_of_image|><|image|><|end_of_image|>\n"
    assert rendered(string_model, folder, message).endswith(
        f"<|user|>\n{image}{image}a\nb<|assistant|>\n"
    )


def test_format_string_shows_an_image_alone_without_a_newline(
    string_model: Model, folder: ModelFolder, picture: Image
) -> None:
    assert "<|end_of_image|><|assistant|>" in rendered(
        string_model, folder, Message(Role.USER, [picture])
    )


def test_format_string_takes_no_placeholder_from_a_text(
    string_model: Model, folder: ModelFolder, picture: Image
) -> None:
    typed = "<|begin_of_image|><|image|><|end_of_image|>"
    prompt = string_model.renderer.render(
        Conversation([Message(Role.USER, [Text(typed), picture])])
    )
    assert list(prompt.token_ids).count(folder.image_token_id or 0) == 9


def test_a_list_that_the_template_would_cut_short_is_joined(
    model: Model, folder: ModelFolder
) -> None:
    system = Message(Role.SYSTEM, [Text("a"), Text("b")])
    assistant = Message(Role.ASSISTANT, [])
    text = rendered(model, folder, system, Message(Role.USER, "q"), assistant)
    assert text.startswith("[gMASK]<sop><|system|>\na\nb<|user|>\nq<|assistant|>\n<|assistant|>")


@pytest.mark.parametrize(
    ("enable", "ending"),
    [
        pytest.param(None, "<|assistant|>\n", id="habit"),
        pytest.param(True, "<|assistant|>\n", id="on"),
        pytest.param(False, "<|assistant|>\n<think></think><answer>", id="off"),
    ],
)
def test_a_no_think_prefix_takes_the_place_of_the_template_s_switch(
    string_model: Model, folder: ModelFolder, enable: bool | None, ending: str
) -> None:
    conversation = Conversation([Message(Role.USER, "q")], enable_thinking=enable)
    prompt: Prompt = string_model.renderer.render(conversation)
    text = folder.backend.decode(list(prompt.token_ids), skip_special_tokens=False)
    assert text == f"[gMASK]<sop><|user|>\nq{ending}"
    assert prompt.thinking_closed is (enable is False)
    if enable is False:
        assert folder.control["<answer>"] == prompt.token_ids[-1]


def test_max_pixels_and_min_pixels_replace_the_model_s_own(
    tokenizer_settings: Settings, encoded: Encoded
) -> None:
    screen = Image("0", encoded(Picture.new("RGB", (1080, 2400))))
    dot = Image("1", encoded(Picture.new("RGB", (1, 1))))
    large = load_model(tokenizer_settings(max_pixels=5_000_000, min_pixels=784))
    prompt = large.renderer.render(Conversation([Message(Role.USER, [screen, dot])]))
    counts = [placement.feature.patches.token_count for placement in prompt.placements]
    assert counts == [3108, 1]


@pytest.fixture
def text_only_folder(tmp_path: Path) -> Path:
    """The default model's tokenizer as a model without eyes, and with tags that are special tokens."""
    for name in ("chat_template.jinja", "generation_config.json"):
        (tmp_path / name).write_bytes((MODEL_PATH / name).read_bytes())
    tokenizer = json.loads((MODEL_PATH / "tokenizer.json").read_bytes())
    for token in tokenizer["added_tokens"]:
        token["special"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    configuration = json.loads((MODEL_PATH / "tokenizer_config.json").read_bytes())
    del configuration["processor_class"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(configuration))
    (tmp_path / "config.json").write_text('{"model_type": "llama", "vocab_size": 4096}')
    return tmp_path


def test_a_model_that_sees_no_images_says_so(
    tokenizer_settings: Settings, text_only_folder: Path, picture: Image, model: Model
) -> None:
    blind = load_model(tokenizer_settings(model_path=text_only_folder))
    conversation = Conversation([Message(Role.USER, "hi")])
    assert blind.output.vocabulary_size == 4096
    assert blind.renderer.render(conversation) == model.renderer.render(conversation)
    with pytest.raises(InvalidArgumentError, match=r"content\[1\].*sees no images"):
        blind.renderer.render(Conversation([Message(Role.USER, [Text("x"), picture])]))


def test_tags_that_are_special_tokens_are_seen_all_the_same(
    tokenizer_settings: Settings, text_only_folder: Path, folder: ModelFolder
) -> None:
    special = load_model(tokenizer_settings(model_path=text_only_folder))
    output = OutputText(special.output, OutputOptions(split_reasoning=True))
    written = "<think>T</think>\n<answer>A</answer>"
    piece = output.push(folder.backend.encode(written, add_special_tokens=False).ids)
    assert (piece.reasoning, piece.text, piece.end_tag) == ("T", "A", True)


def test_images_beyond_the_configured_count_are_refused(
    tokenizer_settings: Settings, picture: Image
) -> None:
    blind = load_model(tokenizer_settings(max_images=0))
    with pytest.raises(InvalidArgumentError, match="at most 0 images"):
        blind.renderer.render(Conversation([Message(Role.USER, [picture])]))


def test_a_template_that_refuses_is_quoted() -> None:
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(InvalidArgumentError, match="roles must alternate"):
        template.render([{"role": "user", "content": "x"}])


def test_a_template_that_fails_is_not_quoted() -> None:
    template = ChatTemplate("{{ messages[0].content | int + 'x' }}")
    with pytest.raises(InvalidArgumentError, match="accepts") as caught:
        template.render([{"role": "user", "content": "x"}])
    assert "operand" not in caught.value.message


def test_a_template_cannot_reach_python() -> None:
    template = ChatTemplate("{{ messages.__class__.__mro__ }}")
    with pytest.raises(InvalidArgumentError):
        template.render([{"role": "user", "content": "x"}])


def test_a_template_with_tools_is_given_them() -> None:
    template = ChatTemplate("{% for tool in tools %}{{ tool | tojson }}{% endfor %}")
    assert template.has_tools
    assert template.render([], tools=[{"name": "好<f>"}]) == '{"name": "好<f>"}'


def test_variables_that_the_renderer_takes_for_itself_are_ignored() -> None:
    template = ChatTemplate("{{ messages | length }}{{ shown }}")
    variables = {"conversations": 1, "documents": 1, "continue_final_message": True, "shown": "!"}
    assert template.render([{"role": "user", "content": "x"}], variables) == "1!"


def test_tool_calls_are_laid_out_as_templates_expect_them(folder: ModelFolder) -> None:
    from services.tokenizer.content import ContentLayout

    layout = ContentLayout(ChatTemplate("{{ tools }}"), "openai", "<image>")
    call = Message(Role.ASSISTANT, "", (ToolCall("1", "f", {"x": 1}),))
    answer = Message(Role.TOOL, "done", tool_call_id="1")
    assert [layout.message(message, lambda value: value) for message in (call, answer)] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
            ],
        },
        {"role": "tool", "content": "done", "tool_call_id": "1"},
    ]


def test_the_generation_prompt_of_a_template_that_changes_its_end_is_what_differs() -> None:
    template = ChatTemplate("abc{{ '<think>x' if add_generation_prompt else '<end>' }}")
    assert template.generation_prompt("abc<think>x", [], {}, []) == "think>x"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        pytest.param({"model_path": MODEL_PATH / "nowhere"}, "is no folder", id="no-folder"),
        pytest.param({"content_format": "auto"}, "content_format", id="unknown-format"),
        pytest.param({"max_waiting": -1}, "max_waiting", id="negative"),
        pytest.param({"model_name": ""}, "model_name", id="nameless"),
        pytest.param({"no_such_setting": 1}, "no_such_setting", id="unknown"),
    ],
)
def test_wrong_settings_are_refused_by_name(
    tokenizer_settings: Settings, values: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        tokenizer_settings(**values)


def test_settings_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from services.runtime.settings import environment
    from services.tokenizer.settings import TokenizerSettings

    values = {
        "model_path": str(MODEL_PATH),
        "model_name": "tiny",
        "workers": {"worker-0": "unix:/run/worker-0"},
        "end_tags": ["</answer>", "</end>"],
        "no_think_prefix": "<think></think><answer>",
        "max_pixels": 5_000_000,
    }
    for name, value in environment("HOTLINE_TOKENIZER_", values).items():
        monkeypatch.setenv(name, value)
    settings = TokenizerSettings.read()
    assert settings.workers == {"worker-0": "unix:/run/worker-0"}
    assert settings.end_tags == ("</answer>", "</end>")
    assert settings.no_think_prefix == "<think></think><answer>"
