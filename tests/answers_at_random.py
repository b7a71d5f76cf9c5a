"""Sends random requests through the edge, and to the worker behind it with the same ids: the answers must be one."""

import json
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx
from grpc import aio
from hotline.v1 import inference_pb2, inference_pb2_grpc, worker_pb2, worker_pb2_grpc
from random_requests import RandomRequest, cut

LIMIT_S = 60.0
END_TAG = "</answer>"


@dataclass
class Answer:
    """What came of one choice."""

    text: str = ""
    reason: str = ""
    token_ids: list[int] = field(default_factory=list)
    """Natively: of the tokens with log-probabilities. From the worker: all."""
    spelt: bytes = b""
    """Of chat: the bytes of the tokens with log-probabilities."""
    stop_token_id: int | None = None


class Comparison:
    """Asks both."""

    def __init__(self, http: httpx.AsyncClient, edge: aio.Channel, worker: aio.Channel) -> None:
        self._http = http
        self._native = inference_pb2_grpc.InferenceServiceStub(edge)
        self._worker = worker_pb2_grpc.WorkerServiceStub(worker)
        self._numbers = count()
        self.reasons: Counter[str] = Counter()
        """How all choices so far have ended."""

    async def check(self, request: RandomRequest) -> None:
        """Fails where the edge's answer is another than the worker's."""
        key, answers, completion_tokens = await self._edge(request)
        direct = await self._direct(request, key)
        assert sorted(answers) == sorted(direct) == list(range(request.choice_count)), request
        counted, spelt = 0, False
        for index, answer in answers.items():
            made = direct[index]
            counted += len(made.token_ids)
            written = made.text
            if not request.fields.get("ignore_eos"):
                written, _, _ = written.partition(
                    END_TAG
                )  # it may also be spelt by ordinary tokens
            expected = cut(written, request.stops)
            assert answer.text == expected, (request, made, answer)
            stopped = expected != made.text
            spelt = spelt or written != made.text
            assert answer.reason == ("stop" if stopped else made.reason), (request, made, answer)
            assert is_subsequence(answer.token_ids, made.token_ids), (request, made, answer)
            if request.way == "chat" and request.logprobs is not None and not stopped:
                assert answer.spelt.decode(errors="replace") == answer.text, (request, answer)
            self.reasons[answer.reason] += 1
        if not request.stops and not spelt:
            assert completion_tokens == counted, request

    async def _edge(self, request: RandomRequest) -> tuple[str, dict[int, Answer], int]:
        if request.way.startswith("native"):
            return await self._natively(request)
        route, body = request.rest()
        if request.stream:
            body["stream_options"] = {"include_usage": True}
        answer = await self._http.post(route, json=body)
        assert answer.status_code == 200, (request, answer.text)
        pieces = [answer.text]
        if request.stream:
            *events, done, _ = answer.text.split("\n\n")
            assert done == "data: [DONE]"
            pieces = [event.removeprefix("data: ") for event in events]
        answers: dict[int, Answer] = defaultdict(Answer)
        for piece in map(json.loads, pieces):
            for one in piece["choices"]:
                _add(answers[one["index"]], one, chat=request.way == "chat")
        return piece["id"].partition("-")[2], answers, piece["usage"]["completion_tokens"]

    async def _natively(self, request: RandomRequest) -> tuple[str, dict[int, Answer], int]:
        key = f"random-{next(self._numbers)}"
        answers: dict[int, Answer] = defaultdict(Answer)
        call = self._native.Generate(request.native(key), timeout=LIMIT_S)
        async for event in call:
            if event.HasField("text"):
                answer = answers[event.choice_index]
                answer.text += event.text.text
                answer.token_ids += [one.sampled.token_id for one in event.text.logprobs]
        end = event.finished
        answers[0].reason = generation_reason(end.reason)
        for choice in end.choices:  # there for n above 1
            answers[choice.choice_index].reason = generation_reason(choice.reason)
        return key, answers, end.usage.completion_tokens

    async def _direct(self, request: RandomRequest, key: str) -> dict[int, Answer]:
        prompt = request.prompt
        if request.way in ("chat", "native", "text"):
            told = await self._http.post("/v1/tokenize", json=request.tokenization())
            prompt = told.json()["tokens"]
        asked = worker_pb2.WorkerGenerateRequest(
            generation_id=f"direct-{key}",
            trace_key=key,
            prompt_token_ids=prompt,
            sampling=request.sampling(),
            time_limit_ms=int(LIMIT_S * 1000),
        )
        answers: dict[int, Answer] = defaultdict(Answer)
        async for event in self._worker.Generate(asked, timeout=LIMIT_S):
            if event.HasField("tokens"):
                answers[event.tokens.choice_index].token_ids += event.tokens.token_ids
            elif event.HasField("finished"):
                answer = answers[event.finished.choice_index]
                answer.reason = generation_reason(event.finished.reason)
                if event.finished.HasField("stop_token_id"):
                    answer.stop_token_id = event.finished.stop_token_id
        for answer in answers.values():
            answer.text = await self._text(answer, request.fields.get("stop_token_ids", ()))
        return answers

    async def _text(self, answer: Answer, shown_ends: Collection[int]) -> str:
        """The text of all ids but the model's end; a token that the client chose as an end is shown, as vLLM does."""
        ids, end = answer.token_ids, answer.stop_token_id
        if end is not None and end not in shown_ends and ids[-1:] == [end]:
            ids = ids[:-1]
        if not ids:
            return ""
        told = await self._native.Detokenise(
            inference_pb2.DetokeniseIdsRequest(token_ids=ids), timeout=LIMIT_S
        )
        text: str = told.text
        return text


def _add(answer: Answer, one: dict[str, Any], *, chat: bool) -> None:
    """What one choice of a REST answer, or of one chunk, says."""
    said = one.get("message") or one.get("delta") or {} if chat else {"content": one["text"]}
    answer.text += said.get("content") or ""
    answer.reason = one["finish_reason"] or answer.reason
    if chat and one.get("logprobs"):
        answer.spelt += b"".join(bytes(token["bytes"]) for token in one["logprobs"]["content"])


def generation_reason(number: int) -> str:
    """OpenAI's word for a hotline.v1.FinishReason."""
    from hotline.v1 import generation_pb2

    name = generation_pb2.FinishReason.Name(number).removeprefix("FINISH_REASON_")
    return {"STOP": "stop", "STOP_SEQUENCE": "stop", "LENGTH": "length"}[name]


def is_subsequence(some: list[int], of: list[int]) -> bool:
    """Whether all of `some` stand in `of`, in order."""
    rest = iter(of)
    return all(one in rest for one in some)
