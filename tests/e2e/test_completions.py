"""Text completions over the whole stack: the same greedy tokens as a chat of the same prompt, by every way in."""

import httpx
import pytest
from openai import OpenAI

MODEL = "autoglm-phone-tiny"
MESSAGES = [{"role": "user", "content": "你是谁？"}]
PROMPT = "[gMASK]<sop><|user|>\n你是谁？<|assistant|>\n"


@pytest.fixture(scope="module")
def client(stack):
    with OpenAI(base_url=stack.base_url, api_key="EMPTY", max_retries=0, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def token_ids(stack):
    """The ids of the rendered conversation."""
    answer = httpx.post(f"{stack.base_url}/tokenize", json={"messages": MESSAGES}, trust_env=False)
    return answer.json()["tokens"]


@pytest.fixture(scope="module")
def spoken(client):
    """What chat says."""
    answer = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, temperature=0, max_tokens=60
    )
    return answer.choices[0].message.content, answer.usage


def test_a_text_and_its_ids_are_answered_as_the_conversation_is(client, token_ids, spoken):
    text, usage = spoken
    for prompt in (PROMPT, token_ids):
        answer = client.completions.create(model=MODEL, prompt=prompt, temperature=0, max_tokens=60)
        assert answer.choices[0].text == text
        assert answer.usage.prompt_tokens == usage.prompt_tokens == len(token_ids)
        assert answer.usage.completion_tokens == usage.completion_tokens


def test_prompts_side_by_side_are_answered_as_one_by_one(client, token_ids):
    prompts = ["Who are you?", PROMPT, "count to 10", "打开微信"]
    alone = [
        client.completions.create(model=MODEL, prompt=prompt, temperature=0, max_tokens=12)
        for prompt in prompts
    ]
    together = client.completions.create(
        model=MODEL, prompt=prompts, temperature=0, max_tokens=12, stream=True
    )
    texts = dict.fromkeys(range(len(prompts)), "")
    for chunk in together:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert [texts[index] for index in sorted(texts)] == [one.choices[0].text for one in alone]


def test_a_stop_string_ends_a_completion_and_frees_the_worker(client, stack, spoken):
    text, _ = spoken
    stop = text[4:6]
    answer = client.completions.create(
        model=MODEL,
        prompt=PROMPT,
        temperature=0,
        max_tokens=500,
        stop=stop,
        extra_body={"ignore_eos": True},
    )
    assert answer.choices[0].text == text[: text.index(stop)]
    assert answer.choices[0].finish_reason == "stop"
    assert stack.idle_within(5)
