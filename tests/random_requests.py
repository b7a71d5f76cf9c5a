"""Random valid requests, the same for REST, natively and for a worker called directly, and what each must answer."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from hotline.v1 import conversation_pb2, inference_pb2, sampling_pb2

MODEL = "autoglm-phone-tiny"
WORDS = [
    "你",
    "好",
    "tap",
    "the",
    "button",
    "😀",
    "设置",
    "é",
    "count",
    "to",
    "10",
    "\n",
    "?",
    "<|user|>",
]
STOPS = ["e", "o", "的", "1", "，", "a", "0"]
"""One character each, so that the first match is never in doubt."""
MAX_CHOICES = 3

Way: TypeAlias = Literal["chat", "ids", "text", "native", "native ids"]
WAYS: tuple[Way, ...] = ("chat", "ids", "text", "native", "native ids")


@dataclass(frozen=True)
class RandomRequest:
    """One request, and how to send it."""

    way: Way
    messages: list[dict[str, str]]
    """Of chat, and of native messages."""
    prompt: list[int] | str
    """Of the other ways."""
    fields: dict[str, Any]
    """Sampling, by the names that REST and the contract share; stop strings and logprobs are not in it."""
    stops: list[str]
    logprobs: int | None
    stream: bool
    max_tokens: int
    extras: dict[str, Any]
    """What changes nothing of the answer."""

    @property
    def choice_count(self) -> int:
        """Choices in the answer."""
        return int(self.fields.get("n", 1))

    def tokenization(self) -> Mapping[str, Any]:
        """The body of /v1/tokenize that tells the prompt's ids."""
        if self.way in ("chat", "native"):
            return {"messages": self.messages}
        return {"prompt": self.prompt}

    def rest(self) -> tuple[str, dict[str, Any]]:
        """Route and body."""
        body: dict[str, Any] = {"model": MODEL, "temperature": 0, **self.fields, **self.extras}
        body |= {"max_tokens": self.max_tokens, "stream": self.stream}
        if self.stops:
            body["stop"] = self.stops if len(self.stops) > 1 else self.stops[0]
        if self.way == "chat":
            if self.logprobs is not None:
                body |= {"logprobs": True, "top_logprobs": self.logprobs}
            return "/v1/chat/completions", body | {"messages": self.messages}
        if self.logprobs is not None:
            body["logprobs"] = self.logprobs
        return "/v1/completions", body | {"prompt": self.prompt}

    def native(self, generation_id: str) -> inference_pb2.GenerateRequest:
        """The same for InferenceService."""
        request = inference_pb2.GenerateRequest(
            generation_id=generation_id, sampling=self.sampling(), model=MODEL
        )
        request.sampling.stop.extend(self.stops)
        if self.way == "native":
            for message in self.messages:
                role = conversation_pb2.Role.Value(f"ROLE_{message['role'].upper()}")
                request.messages.add(role=role, text=message["content"])
        else:
            request.prompt.token_ids.values.extend(self.prompt)
        return request

    def sampling(self) -> sampling_pb2.SamplingParameters:
        """The same for a worker, which knows no text."""
        fields = {**self.fields}
        bias = {int(token): value for token, value in fields.pop("logit_bias", {}).items()}
        made = sampling_pb2.SamplingParameters(
            temperature=0, max_tokens=self.max_tokens, logit_bias=bias, **fields
        )
        if self.logprobs is not None:
            made.logprobs = self.logprobs
        return made


def random_request(source: random.Random, vocabulary_size: int, max_tokens: int) -> RandomRequest:
    """A valid request that is greedy.

    Args:
        source: of the choices.
        vocabulary_size: ids of prompts are ordinary ones, below half of it.
        max_tokens: of the longest answer.
    """
    way = source.choice(WAYS)
    tokens = source.randint(1, max_tokens)
    text = " ".join(source.choices(WORDS, k=source.randint(1, 12)))
    messages = [{"role": "user", "content": text}]
    if source.random() < 0.3:
        messages.insert(0, {"role": "system", "content": source.choice(["", "Be brief.", "简短"])})
    if source.random() < 0.3:
        messages += [
            {"role": "assistant", "content": "<think>T</think><answer>A</answer>"},
            {"role": "user", "content": "go on"},
        ]
    ids = [source.randint(300, vocabulary_size // 2) for _ in range(source.randint(1, 30))]
    some: dict[str, Any] = {
        "top_p": round(source.uniform(0.05, 1), 3),
        "top_k": source.choice([-1, 0, 1, 40]),
        "min_p": round(source.uniform(0, 1), 2),
        "presence_penalty": round(source.uniform(-2, 2), 2),
        "frequency_penalty": round(source.uniform(-2, 2), 2),
        "repetition_penalty": round(source.uniform(0.5, 2), 2),
        "seed": source.randint(-(2**63), 2**63 - 1),
        "min_tokens": source.randint(0, tokens),
        "stop_token_ids": source.sample(range(300, vocabulary_size // 2), source.randint(0, 3)),
        "ignore_eos": source.random() < 0.5,
        "logit_bias": {str(token): source.uniform(-5, 5) for token in source.sample(ids, 1)},
        "n": source.randint(1, MAX_CHOICES),
    }
    extras = {
        "user": "someone",
        "priority": source.randint(-100, 100),
        "metadata": {"a": 1},
        "an_unknown_field": [None, {"x": True}],
        "store": False,
    }
    return RandomRequest(
        way=way,
        messages=messages,
        # Neither the placeholders of images nor what would be one token more.
        prompt=text.replace("<|user|>", "user") if way == "text" else ids,
        fields={name: value for name, value in some.items() if source.random() < 0.35},
        stops=source.sample(STOPS, source.randint(1, 3)) if source.random() < 0.25 else [],
        logprobs=source.randint(0, 5) if source.random() < 0.3 else None,
        stream=source.random() < 0.5,
        max_tokens=tokens,
        extras={name: value for name, value in extras.items() if source.random() < 0.2},
    )


def cut(text: str, stops: list[str]) -> str:
    """A text up to the first of the stop strings, each one character."""
    return text[: min((text.index(stop) for stop in stops if stop in text), default=len(text))]
