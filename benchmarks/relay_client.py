"""The client of the relay benchmark: many streams at once, every message timed, every token checked afterwards."""

import asyncio
import time
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from grpc import aio
from hotline.v1 import conversation_pb2, generation_pb2, inference_pb2
from relay_processes import MODEL

GENERATE = "/hotline.v1.InferenceService/Generate"


@dataclass
class Received:
    """One stream, as it came."""

    name: str
    times_s: "array[float]" = field(default_factory=lambda: array("d"))
    messages: list[bytes] = field(default_factory=list)

    shares: list[float] = field(default_factory=list)
    """The share of the stream's tokens in each message, by the length of its text; set by who has looked into them."""

    def tokens_between(self, begin_s: float, end_s: float, token_count: int) -> float:
        """How many of the stream's tokens came within a window."""
        pairs = zip(self.times_s, self.shares, strict=True)
        return token_count * sum(share for time_s, share in pairs if begin_s <= time_s <= end_s)

    @property
    def elapsed_s(self) -> float:
        """From the first message to the last."""
        return self.times_s[-1] - self.times_s[0]


async def receive(channel: aio.Channel, method: str, name: str, request: bytes) -> Received:
    """One call to its end. Messages stay bytes: the client must not be what is measured."""
    received = Received(name)
    call: Any = channel.unary_stream(method)(request)
    clock, times, messages = time.monotonic, received.times_s, received.messages
    while (message := await call.read()) is not aio.EOF:
        times.append(clock())
        messages.append(message)
    return received


async def receive_all(
    channel: aio.Channel, method: str, requests: Sequence[tuple[str, bytes]], spread_s: float
) -> list[Received]:
    """All calls at once, begun evenly over `spread_s`, so that their tokens do not come in step by accident."""

    async def later(index: int, name: str, request: bytes) -> Received:
        await asyncio.sleep(spread_s * index / len(requests))
        return await receive(channel, method, name, request)

    return await asyncio.gather(
        *(later(index, name, request) for index, (name, request) in enumerate(requests))
    )


def generate_request(token_count: int) -> bytes:
    """A generation of exactly so many tokens; the simulator's follow from its id, which the gateway makes: what its client
    names can be resumed, and has a ring to pay for."""
    message = conversation_pb2.Message(role=conversation_pb2.ROLE_USER, text="Hi")
    request = inference_pb2.GenerateRequest(messages=[message])
    request.sampling.max_tokens, request.sampling.ignore_eos = token_count, True
    return request.SerializeToString()


class Checker:
    """Whether streams hold every token exactly once, in order, and none of another stream."""

    def __init__(self, token_count: int) -> None:
        from tokenizers import Tokenizer

        from services.worker.model import read_model

        self._token_count = token_count
        self._ordinary_ids = read_model(MODEL, {}).ordinary_ids
        self._tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))

    def check(self, received: Received) -> None:
        """Raises AssertionError that says what is wrong with a stream; sets its shares."""
        from services.worker.sim_tokens import trace_token

        events = [generation_pb2.GenerationEvent.FromString(m) for m in received.messages]
        last = events[-1]
        assert last.HasField("finished"), f"{received.name} ended with {last}"
        count = last.finished.usage.completion_tokens
        assert count == self._token_count, f"{received.name}: {count} tokens"
        numbers = [event.sequence for event in events]
        assert all(a < b for a, b in pairwise(numbers)), f"{received.name}: out of sequence"
        generation_id = events[0].accepted.generation_id
        ids = [trace_token(generation_id, 0, p, self._ordinary_ids) for p in range(count)]
        expected = self._tokenizer.decode(ids, skip_special_tokens=True)
        text = "".join(event.text.text for event in events)
        pairs = zip(text, expected, strict=False)
        same = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(text), len(expected)))
        assert text == expected, (
            f"{received.name}: after {same} of {len(expected)} characters the text is not that of its tokens: "
            f"{text[same : same + 40]!r} for {expected[same : same + 40]!r}, {len(text)} characters in all"
        )
        received.shares = [len(event.text.text) / len(text) for event in events]


def gaps_ms(streams: Iterable[Received], begin_s: float, end_s: float) -> list[float]:
    """All times between neighbouring messages of a stream within a window, sorted."""
    return sorted(
        (after - before) * 1000
        for stream in streams
        for before, after in pairwise(stream.times_s)
        if begin_s <= before and after <= end_s
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """Of a sorted sequence; nan where it is empty."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")
