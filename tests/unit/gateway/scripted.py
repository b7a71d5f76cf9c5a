"""Scripted clients behind the relay's interfaces (services/gateway/interfaces.py), for tests of one generation without processes."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace

from services.gateway.interfaces import (
    GenerationRequest,
    Rendered,
    TextOptions,
    TextOutput,
    TextSink,
    WorkerEvent,
    WorkerFinished,
    WorkerTokens,
)
from services.runtime.errors import FeaturesMissingError, ServiceError

REQUEST = GenerationRequest(
    generation_id="g",
    owner="o",
    model="m",
    messages=(),
    render_options=None,
    sampling=None,
    choice_count=1,
    stop=(),
    split_reasoning=False,
    ignore_eos=False,
    max_tokens=None,
    priority=0,
    deadline_s=60.0,
)


def text_output(text: str = "", **fields: object) -> TextOutput:
    """An output with every other field at rest."""
    output = TextOutput(text, "", 0, False, "", False, None)
    return replace(output, **fields)


@dataclass
class ScriptedText:
    """Spells every id as its number; a stop string ends it where it appears."""

    stop: Sequence[str]
    sink: TextSink
    consumed: int = 0
    ended: bool = False
    closed: bool = False

    def send(self, token_ids: Sequence[int], last: bool) -> None:
        assert not self.closed
        for token_id in token_ids:
            if self.ended:
                return
            self.consumed += 1
            if f"{token_id}" in self.stop:
                self.ended = True
                self.sink(
                    text_output(
                        finished=True, stop_match=f"{token_id}", consumed_tokens=self.consumed
                    )
                )
                return
            self.sink(text_output(f"{token_id} ", consumed_tokens=self.consumed))
        if last and not self.ended:
            self.ended = True
            self.sink(text_output(finished=True, consumed_tokens=self.consumed))

    def close(self) -> None:
        self.closed = True


@dataclass
class ScriptedTokenizer:
    """Renders what it is told to."""

    name: str = "tokenizer"
    token_ids: Sequence[int] = (1, 2, 3)
    digests: Sequence[bytes] = ()
    render_error: ServiceError | None = None
    render_delay_s: float = 0.0
    pushes_missing: int = 0
    renders: int = 0
    pushes: int = 0
    texts: list[ScriptedText] = field(default_factory=list)

    async def render(self, request: GenerationRequest, timeout_s: float) -> Rendered:
        self.renders += 1
        await asyncio.sleep(self.render_delay_s)
        if self.render_error is not None:
            raise self.render_error
        return Rendered(self.token_ids, (), self.digests, False)

    async def push_features(self, digests: Sequence[bytes], worker: str, timeout_s: float) -> None:
        self.pushes += 1
        if self.pushes <= self.pushes_missing:
            raise FeaturesMissingError(digests)

    def open_text(self, options: TextOptions, choice_index: int, sink: TextSink) -> ScriptedText:
        self.texts.append(ScriptedText(options.stop, sink))
        return self.texts[-1]


@dataclass
class ScriptedWorker:
    """Plays a list of steps; an exception in it is raised, a float in it is a pause in seconds."""

    steps: Sequence[WorkerEvent | Exception | float]
    name: str = "worker"
    context_tokens: int = 100
    max_images: int = 4
    asked_max_tokens: int = 0
    running: int = 0

    async def generate(
        self, request: GenerationRequest, rendered: Rendered, max_tokens: int, time_limit_s: float
    ) -> AsyncGenerator[WorkerEvent, None]:
        self.asked_max_tokens = max_tokens
        self.running += 1
        try:
            for step in self.steps:
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, float):
                    await asyncio.sleep(step)
                else:
                    yield step
        finally:
            self.running -= 1


@dataclass
class ScriptedPlacement:
    """One of each."""

    one_tokenizer: ScriptedTokenizer
    one_worker: ScriptedWorker

    def tokenizer(self) -> ScriptedTokenizer:
        return self.one_tokenizer

    def worker(self, model: str) -> ScriptedWorker:
        return self.one_worker


__all__ = [
    "REQUEST",
    "ScriptedPlacement",
    "ScriptedTokenizer",
    "ScriptedWorker",
    "WorkerFinished",
    "WorkerTokens",
]
