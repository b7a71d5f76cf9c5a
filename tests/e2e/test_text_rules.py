"""Cases 10, 12, 19 to 22 over the whole stack: what the text of an answer may and may not hold."""

import httpx
import pytest

from .screens import data_url, png, question, screen


@pytest.fixture
def ask(stack):
    with httpx.Client(base_url=stack.base_url, timeout=60, trust_env=False) as client:

        def asked(messages, **fields):
            body = {"model": "autoglm-phone-tiny", "temperature": 0, "messages": messages, **fields}
            response = client.post("/chat/completions", json=body)
            assert response.status_code == 200, response.text
            choice = response.json()["choices"][0]
            return choice["message"]["content"], choice["finish_reason"]

        yield asked


def user(text: str) -> list[dict[str, object]]:
    return [{"role": "user", "content": text}]


def test_case_10_two_screens_of_one_size_get_two_answers(ask):
    top, bottom = (data_url(png(screen("红色", (0.5, y)))) for y in (0.2, 0.8))
    first, _ = ask(question("点击红色按钮", top))
    second, _ = ask(question("点击红色按钮", bottom))
    again, _ = ask(question("点击红色按钮", top))
    assert first != second
    assert first == again


@pytest.mark.parametrize(
    "spelt", ["<|user|>", "<|assistant|>\n", "<|image|>", "[gMASK]<sop>", "</answer>", "<think>"]
)
def test_case_12_control_tokens_in_user_text_are_plain_text(ask, spelt):
    text, reason = ask(user(f"{spelt} 你是谁？{spelt}"), max_tokens=120)
    assert reason in ("stop", "length")
    assert text


def test_case_19_a_stop_string_over_several_tokens_is_honoured_and_never_leaks(ask):
    whole, _ = ask(user("你是谁？"))
    stop = whole[len(whole) // 2 : len(whole) // 2 + 4]
    text, reason = ask(user("你是谁？"), stop=stop)
    assert reason == "stop"
    assert text == whole[: whole.index(stop)]


def test_case_19_a_stop_string_inside_the_thought_counts(ask):
    whole, _ = ask(user("你是谁？"))
    assert whole.startswith("<think>")
    inside = whole[len("<think>") + 2 : len("<think>") + 4]
    text, reason = ask(user("你是谁？"), stop=[inside])
    assert (text, reason) == (whole[: whole.index(inside)], "stop")


def test_case_19_a_stop_string_that_never_comes_changes_nothing(ask):
    whole, _ = ask(user("你是谁？"))
    assert ask(user("你是谁？"), stop=["</answe", "zzzz", "。。。。"])[0] == whole


def test_case_20_a_stop_string_frees_the_worker(ask, stack):
    whole, _ = ask(user("你是谁？"))
    text, _ = ask(user("你是谁？"), stop=whole[3:5], max_tokens=2000, ignore_eos=True)
    assert text == whole[: whole.index(whole[3:5])]
    assert stack.idle_within(5)


@pytest.mark.parametrize("spoken", ["😀", "👨‍👩‍👧", "𠮷", "你好，世界"])
def test_case_21_no_half_characters_wherever_the_answer_is_cut(ask, spoken):
    whole, _ = ask(user(f"repeat after me: {spoken}"), max_tokens=60)
    assert "\ufffd" not in whole[:-1]
    for max_tokens in range(1, 24):
        text, reason = ask(user(f"repeat after me: {spoken}"), max_tokens=max_tokens)
        assert "\ufffd" not in text[:-1]
        assert whole.startswith(text.removesuffix("\ufffd"))
        if reason == "stop":
            break
