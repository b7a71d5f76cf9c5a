"""What a phone-agent client sends, step by step: the shapes of its requests, whoever answers them."""

from collections.abc import Mapping, Sequence
from typing import Any

MODEL = "autoglm-phone-9b"
HEADERS = {
    "authorization": "Bearer EMPTY",
    "accept": "application/json",  # also when it streams
    "accept-encoding": "gzip, deflate",
}
SYSTEM = "你是一个手机智能助理，请根据屏幕截图和任务给出下一步操作。" * 117
"""About 3,400 characters, as the real one."""
SAMPLING = {"max_tokens": 3000, "temperature": 0.0, "top_p": 0.85, "frequency_penalty": 0.2}
EXTRA = {"enable_thinking": True, "return_reasoning": True}
"""What LangChain's `extra_body` puts at top level."""

Message = dict[str, Any]


def user(text: str, image_url: str = "") -> Message:
    """A user turn: the screen first, then the words; without a screen a list with one text part."""
    image = [{"type": "image_url", "image_url": {"url": image_url}}] if image_url else []
    return {"role": "user", "content": [*image, {"type": "text", "text": text}]}


def assistant(thought: str, answer: str) -> Message:
    """An earlier answer, as it is put back."""
    return {"role": "assistant", "content": f"<think>{thought}</think><answer>{answer}</answer>"}


def doubled(thought: str, answer: str) -> Message:
    """An earlier answer that was put back by a client that wraps tags around tags."""
    return assistant(f"<think>{thought}</think>\n<answer>", answer)


def check(image_url: str, **fields: object) -> Mapping[str, Any]:
    """The set-up's check: whole, with a screen under the long system prompt."""
    messages = [{"role": "system", "content": SYSTEM}, user("打开设置", image_url)]
    return {"model": MODEL, "messages": messages, **SAMPLING, "stream": False, **fields}


PROBE: Mapping[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Hi"}],
    "max_tokens": 5,
    "temperature": 0.0,
}


def step(
    number: int, image_urls: Sequence[str], answers: Sequence[str], **fields: object
) -> Mapping[str, Any]:
    """Step `number`, from 1: earlier turns without their screens, earlier answers with doubled tags.

    Args:
        number: of this step.
        image_urls: the screen of each step.
        answers: what each earlier step was answered.
    """
    messages: list[Message] = [{"role": "system", "content": SYSTEM}]
    for earlier in range(number - 1):
        messages += [user(f"step {earlier + 1}"), doubled("I look.", answers[earlier])]
    messages.append(user(f"step {number}", image_urls[number - 1]))
    return {"model": MODEL, "messages": messages, **SAMPLING, "stream": True, **EXTRA, **fields}
