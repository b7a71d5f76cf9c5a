"""A REST call's own deadline, in a header: one budget, spent wherever the time goes."""

import time

import httpx
import pytest
from rest_stack import rest_stack

BODY = {"messages": [{"role": "user", "content": "Hi"}], "ignore_eos": True}


@pytest.fixture(scope="module")
async def rest(tmp_path_factory):
    folder = tmp_path_factory.mktemp("edge")
    async with (
        rest_stack(folder, {"sim_profile": "rtx4090x2"}, max_running=1) as stack,
        httpx.AsyncClient(base_url=stack.url, timeout=30, trust_env=False) as client,
    ):
        yield client


async def test_an_answer_ends_at_the_deadline_with_the_text_so_far(rest):
    begun_s = time.monotonic()
    answer = await rest.post(
        "/v1/chat/completions",
        json=BODY | {"max_tokens": 5000},
        headers={"X-Request-Timeout": "1.5"},
    )
    assert answer.status_code == 200
    assert 1.0 < time.monotonic() - begun_s < 10
    (choice,) = answer.json()["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"]


async def test_what_cannot_meet_its_deadline_in_the_queue_is_refused(rest):
    long = rest.stream(
        "POST", "/v1/chat/completions", json=BODY | {"max_tokens": 300, "stream": True}
    )
    async with long as stream:
        assert stream.status_code == 200
        answer = await rest.post(
            "/v1/chat/completions",
            json=BODY | {"max_tokens": 5},
            headers={"x-request-timeout": "0.3"},
        )
    assert answer.status_code in (429, 504)
    assert answer.json()["error"]["code"] in ("overloaded", "timeout")


@pytest.mark.parametrize("said", ["0", "-1", "soon", "1e3", "4000", "nan", ""])
async def test_a_deadline_that_is_none_is_refused_by_its_header(rest, said):
    answer = await rest.post(
        "/v1/chat/completions", json=BODY | {"max_tokens": 2}, headers={"x-request-timeout": said}
    )
    if not said:  # HTTP's own way to say nothing
        assert answer.status_code in (200, 400)
        return
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == "x-request-timeout"
    assert "3600" in error["message"]
