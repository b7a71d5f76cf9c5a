"""Refusals name what the client wrote, by the client's own names, and the limit that holds for it."""

import json
from dataclasses import replace

import pytest
from admission_clock import Clock, key
from scripted import REQUEST

from services.gateway.admission import Admission
from services.gateway.admission_limits import AdmissionLimits
from services.gateway.authentication import Authenticator
from services.gateway.field_names import renamed
from services.gateway.json_body import parse
from services.gateway.openai_request import ChatRequest
from services.gateway.parameter_body import read_parameters
from services.gateway.parameter_rules import forced_call
from services.gateway.sampling_wire import field_names
from services.gateway.session_bodies import CreateSessionBody
from services.runtime.errors import InvalidArgumentError, RateLimitedError, UnauthenticatedError


def given(**fields):
    body = {"messages": [{"role": "user", "content": "Hi"}], **fields}
    return read_parameters(parse(json.dumps(body).encode(), ChatRequest))


def test_a_variable_of_the_template_is_named_as_the_rest_client_wrote_it():
    names = field_names(given(chat_template_kwargs={"messages": 1}))
    error = InvalidArgumentError("template_variables.messages", 1, "absent")
    assert renamed(error, names).field == "chat_template_kwargs.messages"
    assert renamed(error, names).message.startswith("chat_template_kwargs.messages: ")


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("sampling.top_k", "top_k"),
        ("sampling.top_k[0]", "top_k[0]"),
        ("sampling.top_kk", "sampling.top_kk"),
        ("messages[0]", "messages[0]"),
    ],
)
def test_only_whole_steps_of_a_path_are_renamed(field, said):
    error = InvalidArgumentError(field, 1, "another")
    assert renamed(error, {"sampling.top_k": "top_k"}).field == said


def test_the_word_for_a_tool_choice_is_the_clients():
    with pytest.raises(InvalidArgumentError, match="'auto'"):
        forced_call(given(tool_choice="auto"))


def test_a_number_that_is_too_large_is_no_broken_json():
    with pytest.raises(InvalidArgumentError) as raised:
        parse(b'{"messages": [], "max_tokens": 1e400}', ChatRequest)
    assert "broken" not in raised.value.message


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"cache_scope": "all"}', "owner or session"),
        (b'{"history": {"images": "some"}}', "none, last or all"),
    ],
)
def test_a_word_that_is_none_of_some_is_told_with_all_of_them(body, words):
    with pytest.raises(InvalidArgumentError, match=words):
        parse(body, CreateSessionBody)


@pytest.mark.parametrize("said", ["Basic abc", "hl-secret", ""])
def test_a_header_that_is_no_bearer_is_told_so_and_not_that_it_is_missing(said):
    with pytest.raises(UnauthenticatedError) as raised:
        Authenticator(None, allow_anonymous=False).caller([said])
    assert "is not `Bearer KEY`" in raised.value.message
    assert "hl-secret" not in raised.value.message


def seat(**limits):
    admission = Admission(AdmissionLimits(default_output_tokens=1000), Clock())
    caller = key("k", **limits)
    return admission, caller, admission.enter(caller, 10)


def test_what_makes_it_too_many_tokens_for_a_key_is_named():
    admission, _, entered = seat(tokens_per_minute=100)
    with entered as entry:
        one = entry.seat()
        for prompt_tokens, field in ((20, "sampling.max_tokens"), (100, "messages")):
            with pytest.raises(InvalidArgumentError) as raised:
                one.rendered(replace(REQUEST, max_tokens=90), prompt_tokens, 5000)
            assert raised.value.field == field
        one.close()
    assert admission.seat_count == 0


def test_a_key_with_a_small_bucket_need_not_say_max_tokens():
    _, _, entered = seat(tokens_per_minute=100)
    with entered as entry:
        one = entry.seat()
        one.rendered(replace(REQUEST, max_tokens=None), 40, 5000)  # 1,000 by default
        one.close()


def test_a_request_refused_for_its_tokens_does_not_cost_a_request_too():
    admission, caller, entered = seat(tokens_per_minute=100, requests_per_minute=5)
    with entered as entry:
        one = entry.seat()
        one.rendered(REQUEST, 80, 10)
        another = admission.enter(caller, 10)
        with another as second:
            refused = second.seat()
            with pytest.raises(RateLimitedError):
                refused.rendered(REQUEST, 80, 10)
            refused.close()
        assert admission.allowance(caller).levels()[0].remaining == 4
        one.close()
