"""openai-python and langchain-openai, unmodified, through Envoy."""

import re

import openai
import pytest
from langchain_openai import ChatOpenAI

from .screens import data_url, png, question, screen

MODEL = "autoglm-phone-tiny"
TAP = re.compile(
    r'<think>.+</think>\n<answer>do\(action="Tap", element=\[(\d{1,3}),(\d{1,3})\]\)', re.DOTALL
)


@pytest.fixture
def client(stack):
    with openai.OpenAI(base_url=stack.base_url, api_key="EMPTY", timeout=60, max_retries=0) as made:
        yield made


def streamed(client: openai.OpenAI, **call: object) -> tuple[str, list[object]]:
    chunks = list(client.chat.completions.create(model=MODEL, stream=True, **call))
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices), chunks


def test_a_screenshot_is_answered_by_a_tap_near_the_button(client):
    url = data_url(png(screen("红色", (0.5, 0.75))))
    text, chunks = streamed(client, messages=question("点击红色按钮", url), temperature=0)
    match = TAP.fullmatch(text)
    assert match, text
    assert abs(int(match[1]) - 500) <= 60
    assert abs(int(match[2]) - 750) <= 60
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"


def test_streamed_and_whole_answers_are_the_same_text(client):
    messages = [{"role": "user", "content": "你是谁？"}]
    text, _ = streamed(client, messages=messages, temperature=0)
    whole = client.chat.completions.create(model=MODEL, messages=messages, temperature=0)
    assert whole.choices[0].message.content == text
    assert whole.model == MODEL
    assert whole.id.startswith("chatcmpl-")
    assert whole.usage is not None
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens


def test_the_first_chunk_carries_role_and_text_and_the_last_usage(client):
    _, chunks = streamed(
        client,
        messages=[{"role": "user", "content": "Hi"}],
        temperature=0,
        stream_options={"include_usage": True},
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[0].choices[0].delta.content
    assert all(chunk.choices[0].delta.role is None for chunk in chunks[1:-1])
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens > 0
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_case_1_the_end_tag_never_reaches_the_client(client):
    for question_text in ("你是谁？", "Who are you?", "你好"):
        text, _ = streamed(
            client, messages=[{"role": "user", "content": question_text}], temperature=0
        )
        assert "</answer" not in text
        assert text
        assert text == text.rstrip("<")


def test_case_3_a_model_cut_at_max_tokens_says_length(client):
    probe = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Hi"}], max_tokens=5, temperature=0
    )
    assert len(probe.choices) == 1
    assert probe.choices[0].finish_reason == "length"
    assert probe.usage.completion_tokens == 5


def test_a_model_that_may_not_end_runs_to_max_tokens(client):
    text, chunks = streamed(
        client,
        messages=[{"role": "user", "content": "Hi"}],
        max_tokens=64,
        temperature=0,
        extra_body={"ignore_eos": True},
        stream_options={"include_usage": True},
    )
    assert chunks[-1].usage.completion_tokens == 64
    assert chunks[-2].choices[0].finish_reason == "length"
    assert text


def test_thinking_can_be_switched_off(client):
    for extra in (
        {"enable_thinking": False},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"extra_body": {"enable_thinking": False}},
    ):
        text, _ = streamed(
            client,
            messages=[{"role": "user", "content": "你是谁？"}],
            temperature=0,
            extra_body=extra,
        )
        assert text
        assert "<think>" not in text


def test_the_thought_can_be_kept_apart(client):
    call = {"messages": [{"role": "user", "content": "你是谁？"}], "temperature": 0}
    plain = client.chat.completions.create(model=MODEL, **call).choices[0].message.content
    apart = client.chat.completions.create(
        model=MODEL, extra_body={"return_reasoning": True}, **call
    )
    message = apart.choices[0].message
    assert message.reasoning_content == message.reasoning
    assert plain == f"<think>{message.reasoning_content}</think>\n<answer>{message.content}"


def test_the_model_list_has_the_canonical_name_and_the_alias(client):
    entries = {model.id: model for model in client.models.list()}
    assert set(entries) == {MODEL, "autoglm-phone-9b"}
    assert all(isinstance(model.created, int) for model in entries.values())
    assert client.models.retrieve("autoglm-phone-9b").id == "autoglm-phone-9b"


def test_an_unknown_model_is_404_by_name(client):
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="gpt-17", messages=[{"role": "user", "content": "Hi"}])
    assert missing.value.code == "model_not_found"
    assert "gpt-17" in missing.value.message


def test_an_alias_is_answered_under_the_canonical_name(client):
    answer = client.chat.completions.create(
        model="autoglm-phone-9b", messages=[{"role": "user", "content": "Hi"}], max_tokens=3
    )
    assert answer.model == MODEL


def test_n_choices_come_by_index(client):
    answer = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "你是谁？"}], n=2, temperature=0
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.choices[0].message.content == answer.choices[1].message.content != ""


@pytest.mark.parametrize("streaming", [True, False])
def test_langchain_asks_by_alias_as_phone_agents_do(stack, streaming):
    llm = ChatOpenAI(
        model="autoglm-phone-9b",
        temperature=0.5,
        base_url=stack.base_url,
        api_key="EMPTY",
        extra_body={"enable_thinking": True, "return_reasoning": True},
        streaming=streaming,
        timeout=60,
        max_retries=0,
    )
    answer = llm.invoke("你是谁？")
    assert answer.content
    assert "<think>" not in answer.content
    assert "<answer>" not in answer.content
    assert answer.response_metadata["finish_reason"] == "stop"


def test_langchain_streams_a_screenshot(stack):
    llm = ChatOpenAI(
        model="autoglm-phone-9b",
        temperature=0,
        base_url=stack.base_url,
        api_key="EMPTY",
        timeout=60,
    )
    messages = question("点击蓝色按钮", data_url(png(screen("蓝色", (0.4, 0.3)))))
    text = "".join(chunk.content for chunk in llm.stream(messages))
    assert TAP.fullmatch(text), text


def test_the_second_step_of_a_phone_agent_is_answered(client):
    first = question("点击红色按钮", data_url(png(screen())))
    text, _ = streamed(client, messages=first, temperature=0)
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "点击红色按钮"}]},
        {"role": "assistant", "content": text.replace("\n<answer>", "<answer>") + "</answer>"},
        *question("** Screen Info **", data_url(png(screen("绿色", (0.5, 0.2))))),
    ]
    second, chunks = streamed(client, messages=messages, temperature=0, max_tokens=200)
    assert second
    assert chunks[-1].choices[0].finish_reason in ("stop", "length")


def test_a_long_answer_is_whole(client):
    text, chunks = streamed(
        client, messages=[{"role": "user", "content": "count to 50"}], temperature=0
    )
    assert text.endswith(", ".join(map(str, range(1, 51))))
    assert len(chunks) > 50


def test_a_screenshot_under_a_phone_agents_long_system_prompt_is_answered(client):
    rules = "你是一个手机智能助理，请根据屏幕截图和任务给出下一步操作。" * 110
    assert len(rules) > 3000
    messages = [
        {"role": "system", "content": rules},
        *question("点击红色按钮", data_url(png(screen()))),
    ]
    check = client.chat.completions.create(
        model=MODEL,
        messages=messages,
        max_tokens=3000,
        temperature=0.0,
        top_p=0.85,
        frequency_penalty=0.2,
        stream=False,
    )
    assert check.choices[0].message.content
    assert check.usage.prompt_tokens > 1000
    streamed_text, _ = streamed(client, messages=messages, temperature=0)
    assert TAP.fullmatch(streamed_text), streamed_text
