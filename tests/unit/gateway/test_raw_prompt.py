"""Raw prompts: what a native client may send, and by which name it hears of what is wrong."""

import pytest
from hotline.v1 import inference_pb2

from services.gateway.caller import Caller
from services.gateway.interfaces import GenerationRequest
from services.gateway.raw_prompt import as_written
from services.gateway.renderable import RawPrompt
from services.gateway.wire import generation_request
from services.runtime.error_table import Reason
from services.runtime.errors import (
    ContextLengthError,
    InvalidArgumentError,
    OverloadedError,
    ServiceError,
)
from services.runtime.plain_text_limits import MAX_TEXT_BYTES


def native(**fields: object) -> inference_pb2.GenerateRequest:
    return inference_pb2.GenerateRequest(**fields)


def text(value: str, **fields: object) -> inference_pb2.RawPrompt:
    return inference_pb2.RawPrompt(text=value, **fields)


def ids(*values: int) -> inference_pb2.RawPrompt:
    return inference_pb2.RawPrompt(token_ids=inference_pb2.TokenIdList(values=values))


def checked(request: inference_pb2.GenerateRequest) -> GenerationRequest:
    return generation_request(request, "m", Caller(), 60.0)


def test_a_text_gets_what_the_tokenizer_puts_before_every_text_unless_told_not_to():
    assert checked(native(prompt=text("Hi"))).prompt == RawPrompt("Hi", True, "prompt.text")
    without = checked(native(prompt=text("Hi", add_special_tokens=False)))
    assert without.prompt == RawPrompt("Hi", False, "prompt.text")


def test_token_ids_are_taken_as_they_are():
    prompt = checked(native(prompt=ids(1, 2, 3))).prompt
    assert list(prompt.content) == [1, 2, 3]


def test_there_is_no_thought_to_split_off():
    request = native(prompt=text("Hi"))
    request.render.split_reasoning = True
    assert checked(request).split_reasoning is False


MESSAGE = {"role": 2, "text": "Hi"}


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        pytest.param(native(), "messages", id="neither"),
        pytest.param(native(prompt=text("Hi"), messages=[MESSAGE]), "messages", id="both"),
        pytest.param(native(prompt=inference_pb2.RawPrompt()), "prompt", id="no kind"),
        pytest.param(native(prompt=text("")), "prompt.text", id="empty text"),
        pytest.param(native(prompt=ids()), "prompt.token_ids.values", id="no ids"),
        pytest.param(
            native(prompt=text("x" * (MAX_TEXT_BYTES + 1))), "prompt.text", id="long text"
        ),
        pytest.param(
            native(prompt=text("x"), render={"enable_thinking": False}), "render", id="thinking"
        ),
        pytest.param(
            native(prompt=text("x"), render={"tools": [{}]}), "render", id="tools for no template"
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(request_, field):
    with pytest.raises(InvalidArgumentError) as raised:
        checked(request_)
    assert raised.value.field == field


PROMPT = RawPrompt([1], True, "prompt[2]")


@pytest.mark.parametrize(
    ("error", "field", "message"),
    [
        pytest.param(
            InvalidArgumentError("prompt_token_ids[7]", 9, "below 9"),
            "prompt[2][7]",
            "prompt[2][7]: 9 is not allowed; must be below 9.",
            id="the worker's",
        ),
        pytest.param(
            InvalidArgumentError("text", "t", "short"),
            "prompt[2]",
            "prompt[2]: 't' is not allowed; must be short.",
            id="the tokenizer's",
        ),
        pytest.param(
            ContextLengthError(9, 8),
            "prompt[2]",
            "prompt[2]: the prompt has 9 tokens, but this model's context is 8 tokens, of which at "
            "least one is for the answer.",
            id="too long",
        ),
        pytest.param(
            InvalidArgumentError("sampling.top_k", -2, "more"),
            "sampling.top_k",
            "sampling.top_k: -2 is not allowed; must be more.",
            id="another field",
        ),
    ],
)
def test_an_error_from_behind_names_the_prompt_as_its_client_wrote_it(error, field, message):
    written = as_written(error, PROMPT)
    assert (written.field, written.message, written.reason) == (field, message, error.reason)


def test_an_images_place_in_a_raw_prompt_is_explained():
    placeholders = InvalidArgumentError("features", "0 placeholder tokens covered", "1")
    written = as_written(placeholders, PROMPT)
    assert written.field == "prompt[2]"
    assert "images go into messages" in written.message


@pytest.mark.parametrize(
    ("error", "prompt"),
    [
        (ContextLengthError(9, 8), None),
        (OverloadedError("128 wait.", retry_delay_s=1.0), PROMPT),
    ],
    ids=["messages", "no field"],
)
def test_other_errors_stay_as_they_are(error: ServiceError, prompt: RawPrompt | None):
    assert as_written(error, prompt) is error


def test_a_renamed_error_keeps_reason_and_numbers():
    written = as_written(ContextLengthError(9, 8), PROMPT)
    assert written.reason is Reason.CONTEXT_LENGTH_EXCEEDED
    assert written.metadata["prompt_tokens"] == "9"
