"""Scripted clients behind the relay's interfaces (services/gateway/interfaces.py), for tests of one generation without processes."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from services.gateway.caller import Caller
from services.gateway.interfaces import (
    GenerationRequest,
    Rendered,
    TextOptions,
    TextOutput,
    TextSink,
    WorkerEvent,
    WorkerFinished,
    WorkerSink,
    WorkerTokens,
)
from services.runtime.errors import FeaturesMissingError, ServiceError, UnavailableError

Process = TypeVar("Process")

REQUEST = GenerationRequest(
    generation_id="g",
    caller=Caller("o"),
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
    silent: bool = False

    def send(self, token_ids: Sequence[int], last: bool, logprobs: Sequence[object] = ()) -> None:
        assert not self.closed
        if self.silent:
            return
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
    silent: bool = False
    """Takes ids and answers nothing."""
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
        self.texts.append(ScriptedText(options.stop, sink, silent=self.silent))
        return self.texts[-1]


@dataclass
class ScriptedSteps:
    """One run of a script; see interfaces.WorkerStream."""

    worker: "ScriptedWorker"
    sink: WorkerSink

    def __post_init__(self) -> None:
        self.worker.running += 1
        self.task = asyncio.create_task(self.play())
        self.task.add_done_callback(lambda task: self.close())
        self.closed = False

    async def play(self) -> None:
        for step in self.worker.steps:
            if isinstance(step, float):
                await asyncio.sleep(step)
            else:
                await asyncio.sleep(0)
                self.sink(step)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.worker.running -= 1
            self.task.cancel()


@dataclass
class ScriptedWorker:
    """Plays a list of steps; an error in it is told, a float in it is a pause in seconds.

    `refusals`: told in place of the steps, one for each of the first generations.
    """

    steps: Sequence[WorkerEvent | ServiceError | float]
    name: str = "worker"
    context_tokens: int = 100
    max_images: int = 4
    asked_max_tokens: int = 0
    running: int = 0
    refusals: list[ServiceError] = field(default_factory=list)
    sampled: Sequence[int] = ()
    """What it was told last that others had sampled."""

    def generate(
        self,
        request: GenerationRequest,
        rendered: Rendered,
        max_tokens: int,
        time_limit_s: float,
        sink: WorkerSink,
        sampled: Sequence[int] = (),
    ) -> ScriptedSteps:
        self.asked_max_tokens, self.sampled = max_tokens, list(sampled)
        if self.refusals:
            return ScriptedSteps(replace(self, steps=[self.refusals.pop(0)]), sink)
        return ScriptedSteps(self, sink)


@dataclass
class ScriptedPlacement:
    """Some of each; the first one that is not `other_than` is chosen. Texts are the first tokenizer's, never rebuilt."""

    tokenizers: Sequence[ScriptedTokenizer]
    workers: Sequence[ScriptedWorker]
    placed: list[str] = field(default_factory=list)
    """Names of the workers that generations are on now."""
    move_timeout_s: float = 5.0
    moves: int = 0
    change: asyncio.Event = field(default_factory=asyncio.Event)

    def moved(self) -> None:
        self.moves += 1

    async def changed(self) -> None:
        await self.change.wait()
        self.change.clear()

    def renderer(self, model: str, other_than: object = None) -> ScriptedTokenizer:
        return self._first(self.tokenizers, other_than)

    @contextmanager
    def worker(
        self, model: str, other_than: object = None, prefer: str = ""
    ) -> Iterator[ScriptedWorker]:
        worker = self._first(self.workers, other_than)
        self.placed.append(worker.name)
        try:
            yield worker
        finally:
            self.placed.remove(worker.name)

    def open_text(
        self, model: str, options: TextOptions, choice_index: int, sink: TextSink
    ) -> ScriptedText:
        return self.tokenizers[0].open_text(options, choice_index, sink)

    def _first(self, processes: Sequence[Process], other_than: object) -> Process:
        for process in processes:
            if process is not other_than:
                return process
        raise UnavailableError("Nobody serves.", retry_delay_s=1.0)


__all__ = [
    "REQUEST",
    "ScriptedPlacement",
    "ScriptedTokenizer",
    "ScriptedWorker",
    "WorkerFinished",
    "WorkerTokens",
]
