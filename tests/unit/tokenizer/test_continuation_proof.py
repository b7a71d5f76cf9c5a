"""Which templates let a prompt be put together, and which need the whole."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from template_kit import CHATML, STRIPPING, folder_with
from tokenizer_kit import Settings

from services.tokenizer import continuation_proof
from services.tokenizer.continuation_proof import ContinuationProof
from services.tokenizer.conversation import Answer, Conversation, Message, PastAnswer, Role
from services.tokenizer.model import Model, load_model

Make: TypeAlias = Callable[..., Model]
AFTER = Answer("continuation", ())
TOOL = {"type": "function", "function": {"name": "look"}}


@pytest.fixture
def make(tokenizer_settings: Settings, tmp_path: Path) -> Make:
    """A model with another template."""

    def made(template: str, **values: Any) -> Model:
        return load_model(tokenizer_settings(model_path=folder_with(tmp_path, template), **values))

    return made


def whole_needed(model: Model, *messages: Message, **options: Any) -> bool:
    new = Conversation(messages or [Message(Role.USER, "go on")], after=AFTER, **options)
    return model.renderer.render(new).whole_needed


def changed(old: str, new: str) -> str:
    assert CHATML.count(old) == 1
    return CHATML.replace(old, new)


NEEDS_WHOLE = {
    "strips earlier thoughts": STRIPPING,
    "trims answers": changed("{{ shown(message.content) }}", "{{ shown(message.content) | trim }}"),
    "numbers its turns": changed(
        "{{ shown(message.content) }}", "{{ loop.index }}. {{ shown(message.content) }}"
    ),
    "counts turns at the end": changed(
        "{%- if add_generation_prompt %}",
        "{%- if add_generation_prompt %}<|im_start|>{{ messages | length }}",
    ),
    "marks the last message": changed(
        "{{ shown(message.content) }}",
        "{{ shown(message.content) }}{{ '!' if loop.last }}",
    ),
    "puts the system prompt last": changed(
        "{%- if add_generation_prompt %}",
        "{%- if add_generation_prompt %}{{ messages[0].content if messages[0].role == 'system' }}",
    ),
    "says whether it thinks in every question": changed(
        "{{ shown(message.content) }}",
        "{{ shown(message.content) }}"
        "{{ '/off' if message.role == 'user' and enable_thinking is defined and not enable_thinking }}",
    ),
    "leaves out empty answers": changed(
        "{%- for message in messages %}", "{%- for message in messages if message.content %}"
    ),
    "parts turns by plain text": "{% for message in messages %}\n{{ message.role }}: {{ message.content }}"
    "{% endfor %}\nassistant:",
    "opens an answer otherwise than it shows one": changed(
        "<|im_start|>assistant\n{%", "<|im_start|>assistant{%"
    ),
    "shows every answer twice": changed(
        "{{ shown(message.content) }}", "{{ shown(message.content) * 2 }}"
    ),
    "shows the last question only": "<|im_start|>{{ messages[-1].content }}<|im_start|>",
    "takes one question only": "{{ raise_exception('one') if messages | length > 1 }}<|im_start|>"
    "{{ messages[0].content }}<|im_start|>",
}


@pytest.mark.parametrize("template", NEEDS_WHOLE.values(), ids=NEEDS_WHOLE)
def test_a_template_that_treats_turns_differently_needs_the_whole(
    make: Make, template: str
) -> None:
    assert whole_needed(make(template))


@pytest.mark.parametrize(
    "template",
    [
        pytest.param(CHATML, id="chatml"),
        pytest.param(
            "{% for message in messages %}{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
            "{{ raise_exception('roles must alternate') }}{% endif %}<|im_start|>{{ message.role }}\n"
            "{{ message.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant{{ '\n' }}",
            id="alternating",
        ),
    ],
)
def test_a_template_that_treats_all_turns_alike_does_not(make: Make, template: str) -> None:
    model = make(template, content_format="string", image_placeholder="<|image|>")
    assert not whole_needed(model)
    assert model.renderer.goes_on


def test_a_tokenizer_that_reads_texts_otherwise_alone_needs_the_whole(make: Make) -> None:
    renderer = make(CHATML).renderer
    history = renderer._history
    for encode, alike in ((list, True), (lambda text: [len(text)], False)):
        proof = ContinuationProof(
            renderer._template,
            renderer._layout,
            history.continuations,
            renderer._thinking.switch,
            encode,
            sees_images=True,
            think_tags=("<think>", "</think>"),
        )
        assert proof.holds({}, uses_tools=False) is alike


def test_tools_that_move_with_the_last_question_need_the_whole_only_where_there_are_any(
    make: Make,
) -> None:
    template = CHATML.replace(
        "{{ shown(message.content) }}",
        "{{ tools | tojson if tools and loop.last }}{{ shown(message.content) }}",
    )
    model = make(template, tool_parser="hermes", roles=["render"])
    assert not whole_needed(model)
    assert whole_needed(model, tools=[TOOL])
    assert not whole_needed(model, tools=[TOOL], hides_tools=True)
    assert whole_needed(model, Message(Role.TOOL, "seen", tool_call_id="1"))
    assert not model.renderer.goes_on


def test_what_tools_answered_is_tried_too(make: Make) -> None:
    template = CHATML.replace(
        "{{ shown(message.content) }}",
        "{{ loop.index if message.role == 'tool' }}{{ shown(message.content) }}",
    )
    model = make(template, tool_parser="hermes", roles=["render"])
    assert not whole_needed(model)
    assert whole_needed(model, Message(Role.TOOL, "seen", tool_call_id="1"))
    assert not model.renderer.goes_on


def test_tools_before_the_first_turn_do_not(make: Make) -> None:
    model = make(CHATML, tool_parser="hermes", roles=["render"])
    assert not whole_needed(model, tools=[TOOL])
    assert not whole_needed(model, Message(Role.TOOL, "seen", tool_call_id="1"), tools=[TOOL])


def test_variables_that_a_template_reads_are_tried_and_others_are_not(make: Make) -> None:
    template = CHATML.replace(
        "{{ shown(message.content) }}",
        "{{ loop.index if numbered }}{{ shown(message.content) }}",
    ).replace("You help.", "{{ note }}")
    model = make(template)
    for variables, needed in (
        ({"numbered": True}, True),
        ({"numbered": False}, False),
        ({"number": True}, False),
        ({"note": "short", "other": ["x"]}, False),
        ({"note": "long" * 20}, True),
        ({"note": {"a": 1}}, True),
    ):
        assert whole_needed(model, variables=variables) == needed, variables


def test_an_outcome_is_remembered_for_a_bounded_number_of_variables(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(continuation_proof, "MAX_KNOWN", 3)
    model = make(CHATML.replace("You help.", "{{ name }}"))
    proof = model.renderer._history.proof
    for number in range(6):
        assert proof.holds({"name": number}, uses_tools=False)
    assert len(proof._known) == 3
    start_s = time.thread_time()
    for _ in range(100):
        assert proof.holds({"name": 5}, uses_tools=False)
    assert time.thread_time() - start_s < 0.05


def test_where_the_whole_is_needed_answers_are_rendered_from_their_ids(make: Make) -> None:
    model = make(STRIPPING)
    assert model.plain is not None
    ids = [*model.plain.encode("<think>so</think>\n\ndone", True), 3049]
    messages = [Message(Role.USER, "a"), Message(Role.ASSISTANT, ""), Message(Role.USER, "b")]
    past = PastAnswer(1, Answer("past_answers[0].answer", ids), "<think>\n\n</think>\n\n")
    given = model.renderer.render(Conversation(messages, past_answers=[past]))
    messages[1] = Message(Role.ASSISTANT, "done")
    assert given == model.renderer.render(Conversation(messages))


def test_a_switched_off_thought_is_said_to_stand_before_the_answer(make: Make) -> None:
    for template in (CHATML, STRIPPING):
        question = [Message(Role.USER, "a")]
        for thinks, prefix in ((None, ""), (True, ""), (False, "<think>\n\n</think>\n\n")):
            prompt = make(template).renderer.render(Conversation(question, enable_thinking=thinks))
            assert (prompt.answer_prefix, prompt.thinking_closed) == (prefix, thinks is False)
