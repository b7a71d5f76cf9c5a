"""A phone agent's whole conversation on the real engine: check, probe, models, and five steps that build on each other."""

import re

import httpx
import pytest
from event_stream import check_headers, read_chat
from phone_agent import HEADERS, MODEL, PROBE, SYSTEM, check, doubled, step, user

from .screens import COLOURS, data_url, png, screen

ACTION = re.compile(r'do\(action="\w+".*\)|finish\(message=".*"\)', re.DOTALL)
STEPS = 5


@pytest.fixture(scope="module")
def http(stack):
    with httpx.Client(
        base_url=stack.base_url, headers=HEADERS, timeout=60, trust_env=False
    ) as client:
        yield client


@pytest.fixture(scope="module")
def screens() -> list[str]:
    colours = list(COLOURS)
    return [
        data_url(png(screen(colours[n % 3], (0.3 + n / 10, 0.8 - n / 10), (1080, 2400))))
        for n in range(STEPS)
    ]


def test_the_check_and_the_probe_are_answered(http, screens):
    checked = http.post("/chat/completions", json=check(screens[0])).json()
    assert checked["choices"][0]["message"]["content"]
    assert checked["usage"]["prompt_tokens"] > 1_500
    probe = http.post("/chat/completions", json=PROBE)
    assert probe.status_code == 200
    assert probe.json()["choices"][0]["finish_reason"] == "length"
    assert MODEL in [entry["id"] for entry in http.get("/models").json()["data"]]


def test_case_2_five_steps_with_doubled_tags_are_answered_one_after_another(http, screens):
    answers: list[str] = []
    for number in range(1, STEPS + 1):
        answer = http.post("/chat/completions", json=step(number, screens, answers))
        check_headers(answer)
        told = read_chat(answer.text).choices[0]
        assert told.reason in ("stop", "length")
        assert told.content + told.reasoning
        assert not re.search("</?(think|answer)>", told.content)
        answers.append(told.content[:200])
    assert len(answers) == STEPS


def test_one_trailing_character_after_an_action_would_corrupt_it(http, screens):
    messages = [{"role": "system", "content": SYSTEM}, user("点击红色按钮", screens[0])]
    body = {"model": MODEL, "messages": messages, "temperature": 0, "stream": True}
    told = read_chat(http.post("/chat/completions", json=body).text).choices[0]
    _, _, answer = told.content.partition("<answer>")
    assert ACTION.fullmatch(answer), told.content
    split = {**body, "return_reasoning": True}
    told = read_chat(http.post("/chat/completions", json=split).text).choices[0]
    assert told.content == answer
    assert told.reasoning


def test_case_2_doubled_tags_are_tokens_of_the_prompt_as_they_stand(http):
    turn = doubled("T", 'do(action="Back")')
    body = {"model": MODEL, "messages": [user("u"), turn, user("v")]}
    tokens = http.post("/tokenize", json=body).json()["tokens"]
    prompt = http.post("/detokenize", json={"tokens": tokens}).json()["prompt"]
    assert turn["content"] in prompt
