"""What a template writes behind an answer, and what it is not taken for."""

from dataclasses import replace

import pytest
from template_kit import CHATML
from tokenizer_kit import Settings

from services.runtime.errors import InvalidArgumentError
from services.tokenizer.continuation import Continuations, Following
from services.tokenizer.model import _borders
from services.tokenizer.model_folder import ModelFolder
from services.tokenizer.template import ChatTemplate

NEW = [{"role": "user", "content": "go on"}]
BORDERS = ["<|im_end|>", "<|im_start|>"]


def following(source: str) -> Following | None:
    return Continuations(ChatTemplate(source), BORDERS).after_answer(NEW, {}, [])


def test_it_is_all_behind_the_answer_s_text() -> None:
    prompt_end = "<|im_start|>assistant\n"
    text = f"<|im_end|>\n<|im_start|>user\ngo on<|im_end|>\n{prompt_end}"
    assert following(CHATML) == Following(text, prompt_end)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(
            "{% for each in messages %}\n{{ each.role }}: {{ each.content }}{% endfor %}",
            id="no control token parts the turns",
        ),
        pytest.param("{{ messages | length }}" + CHATML, id="its beginning depends on its length"),
        pytest.param(CHATML * 2, id="the answer stands there twice"),
        pytest.param("<|im_start|>{{ messages[-1].content }}<|im_end|>", id="it is not shown"),
        pytest.param(
            CHATML.replace("shown(message.content) }}", "shown(message.content) | upper }}"),
            id="it is changed",
        ),
    ],
)
def test_a_template_that_does_not_part_it_from_the_answer_is_seen(source: str) -> None:
    assert following(source) is None


def test_what_the_template_refuses_behind_an_answer_is_refused() -> None:
    source = "{{ raise_exception('no more') if messages | length > 2 }}" + CHATML
    with pytest.raises(InvalidArgumentError, match="no more"):
        following(source)


def test_control_tokens_that_take_the_space_before_them_part_nothing(
    folder: ModelFolder, tokenizer_settings: Settings
) -> None:
    from tokenizers import AddedToken, Tokenizer

    backend = Tokenizer.from_str(folder.backend.to_str())
    backend.add_special_tokens(
        [
            AddedToken("<|plain|>", special=True),
            AddedToken("<|strips|>", special=True, lstrip=True),
            AddedToken("<|word|>", special=True, single_word=True),
        ]
    )
    control = {token.content: at for at, token in backend.get_added_tokens_decoder().items()}
    found = _borders(replace(folder, backend=backend, control=control))
    assert {"<|user|>", "<|plain|>"} <= set(found)
    assert not {"<|strips|>", "<|word|>"} & set(found)


@pytest.mark.parametrize(
    ("source", "generation_prompt", "prefix"),
    [
        pytest.param(CHATML, "<|im_start|>assistant\n", "", id="nothing more"),
        pytest.param(CHATML, "<|im_start|>assistant\n<x>", "<x>", id="more"),
        pytest.param(CHATML, "<|im_start|>model\n<x>", "", id="another header"),
        pytest.param("{{ messages[0].content }}", "<x>", "", id="no answers at all"),
    ],
)
def test_what_a_prompt_says_beyond_an_answer_s_header_is_its_prefix(
    source: str, generation_prompt: str, prefix: str
) -> None:
    assert Continuations(ChatTemplate(source), BORDERS).answer_prefix(generation_prompt) == prefix
