"""One generation's way through the system: render, place, relay ids to text, end exactly once."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from itertools import pairwise
from typing import Protocol

from services.gateway.events import (
    Accepted,
    ChoiceEnd,
    Failed,
    Finish,
    Finished,
    Numbered,
    Reasoning,
    Started,
    Text,
    Timings,
    Usage,
)
from services.gateway.interfaces import (
    GenerationRequest,
    Rendered,
    TextOptions,
    TextOutput,
    TextStream,
    Tokenizer,
    Worker,
    WorkerFinished,
    WorkerStarted,
    WorkerTokens,
)
from services.gateway.mailbox import Mailbox
from services.runtime.admission import Admission
from services.runtime.errors import (
    CancelledByPeerError,
    ContextLengthError,
    DeadlineExceededError,
    FeaturesMissingError,
    InternalError,
    InvalidArgumentError,
    ServiceError,
)
from services.runtime.logs import get_logger

_log = get_logger()

DEADLINE_MARGIN_S = 0.1
"""A generation ends so long before its deadline, so that the terminal event still arrives."""


class Placement(Protocol):
    """Chooses processes."""

    def tokenizer(self) -> Tokenizer:
        """A tokenizer that serves. Raises UnavailableError."""

    def worker(self, model: str) -> Worker:
        """A worker that serves this model. Raises UnavailableError."""


class Generation:
    """A running generation. `run` is a task owned by the registry; one reader takes `events`."""

    def __init__(
        self,
        request: GenerationRequest,
        placement: Placement,
        admission: Admission,
        clock: Callable[[], float],
        queue_timeout_s: float,
        render_timeout_s: float,
    ) -> None:
        self.request = request
        self._placement, self._admission, self._clock = placement, admission, clock
        self._queue_timeout_s, self._render_timeout_s = queue_timeout_s, render_timeout_s
        self._mailbox = Mailbox()
        self._choices: list[_Choice] = []
        self._all_ended = asyncio.Event()
        self._failure: ServiceError | None = None
        self._prompt_tokens = self._cached_tokens = 0
        self._marks_s: dict[str, float] = {"asked": clock()}
        self._accepted = False

    async def events(self) -> AsyncGenerator[Numbered, None]:
        """The events, for one reader; ends after the terminal one."""
        while True:
            for numbered in await self._mailbox.take():
                yield numbered
                if isinstance(numbered.event, Finished | Failed):
                    return

    async def run(self) -> None:
        """Live from admission to the terminal event, which is always put, whatever happens.

        Cancelling the task ends the generation with reason CANCELLED and the text so far.
        """
        try:
            async with asyncio.timeout(self._remaining_s()):
                await self._admitted()
        except ServiceError as error:
            self._mailbox.put(Failed(error, self._usage()))
        except TimeoutError:
            self._mailbox.put(
                Failed(DeadlineExceededError("The deadline passed before the end."), self._usage())
            )
        except asyncio.CancelledError:
            cancelled = Failed(CancelledByPeerError("Cancelled before it was accepted."))
            self._mailbox.put(self._finished() if self._accepted else cancelled)
            raise
        # The top of the task: whatever it is, the reader must hear of an end, and the log of the cause.
        except Exception:  # noqa: BLE001
            _log.exception("generation failed", generation_id=self.request.generation_id)
            self._mailbox.put(Failed(InternalError(), self._usage()))
        finally:
            for choice in self._choices:
                choice.close()

    async def _admitted(self) -> None:
        async with self._admission.place(self._queue_timeout_s) as ahead:
            self._mark("admitted")
            tokenizer = self._placement.tokenizer()
            rendered = await tokenizer.render(self.request, self._render_timeout_s)
            worker = self._placement.worker(self.request.model)
            self._prompt_tokens = len(rendered.token_ids)
            room = worker.context_tokens - self._prompt_tokens
            if room < 1:
                raise ContextLengthError(self._prompt_tokens, worker.context_tokens)
            image_count, limit = len(rendered.feature_digests), worker.max_images
            if image_count > limit:
                raise InvalidArgumentError(
                    "messages", f"{image_count} images", f"at most {limit} images in one prompt"
                )
            request, self._accepted = self.request, True
            self._mailbox.put(
                Accepted(request.generation_id, request.model, self._prompt_tokens, ahead)
            )
            if rendered.feature_digests:
                await self._push(tokenizer, rendered, worker)
            self._mark("rendered")
            await self._relay(tokenizer, worker, rendered, min(room, request.max_tokens or room))

    async def _push(self, tokenizer: Tokenizer, rendered: Rendered, worker: Worker) -> None:
        timeout_s = self._render_timeout_s
        try:
            await tokenizer.push_features(rendered.feature_digests, worker.name, timeout_s)
        except FeaturesMissingError:
            # The tokenizer's store is bounded: a burst of images may have displaced these. Once is enough.
            await tokenizer.render(self.request, timeout_s)
            await tokenizer.push_features(rendered.feature_digests, worker.name, timeout_s)

    async def _relay(
        self, tokenizer: Tokenizer, worker: Worker, rendered: Rendered, max_tokens: int
    ) -> None:
        options = TextOptions(
            self.request.stop,
            self.request.split_reasoning,
            rendered.thinking_closed,
            self.request.ignore_eos,
        )
        self._choices = [_Choice(index, self) for index in range(self.request.choice_count)]
        for choice in self._choices:
            choice.stream = tokenizer.open_text(options, choice.index, choice.take)
        steps = asyncio.ensure_future(self._feed(worker, rendered, max_tokens))
        ended = asyncio.ensure_future(self._all_ended.wait())
        try:
            await asyncio.wait((steps, ended), return_when=asyncio.FIRST_COMPLETED)
            if steps.done():
                await steps  # raises what broke the worker's stream
                if not all(choice.ends for choice in self._choices):
                    raise InternalError  # the worker's stream ended without saying why
                await ended  # the tokenizer still flushes
        finally:
            # Cancelling the feed closes the worker's stream: its slot is free before the client hears of the end.
            for task in (steps, ended):
                task.cancel()
            await asyncio.wait((steps, ended))
        if self._failure is not None:
            raise self._failure
        self._mailbox.put(self._finished())

    async def _feed(self, worker: Worker, rendered: Rendered, max_tokens: int) -> None:
        """Worker -> tokenizer."""
        time_limit_s = self._remaining_s() - DEADLINE_MARGIN_S
        steps = worker.generate(self.request, rendered, max_tokens, max(time_limit_s, 0.001))
        async with aclosing(steps):
            async for step in steps:
                if isinstance(step, WorkerTokens):
                    self._choices[step.choice_index].feed(step)
                elif isinstance(step, WorkerFinished):
                    self._choices[step.choice_index].worker_ended(step)
                else:
                    self._started(worker, step)

    def _started(self, worker: Worker, step: WorkerStarted) -> None:
        self._cached_tokens = step.cached_tokens
        self._mailbox.put(Started(worker.name, step.cached_tokens))

    def take(self, index: int, output: TextOutput | ServiceError) -> None:
        """Tokenizer -> reader; called by the choices."""
        if isinstance(output, ServiceError):
            self._failure = output
            self._all_ended.set()
            return
        if output.reasoning:
            self._mailbox.put(Reasoning(index, output.reasoning))
        if output.text:
            self._mailbox.put(Text(index, output.text))
        if output.action is not None:
            self._mailbox.put(output.action)
        if output.finished and all(choice.end is not None for choice in self._choices):
            self._all_ended.set()

    def mark_first_token(self) -> None:
        """Note when the first token came from the worker."""
        self._marks_s.setdefault("first", self._clock())

    def _finished(self) -> Finished:
        cancelled = Finish.CANCELLED
        ends = [choice.end or ChoiceEnd(choice.index, cancelled) for choice in self._choices]
        self._mark("ended")
        return Finished(ends or [ChoiceEnd(0, cancelled)], self._usage(), self._timings())

    def _usage(self) -> Usage:
        completion = sum(choice.completion_tokens for choice in self._choices)
        return Usage(self._prompt_tokens, completion, self._cached_tokens)

    def _timings(self) -> Timings:
        names = ("asked", "admitted", "rendered", "first", "ended")
        end_s = self._marks_s["ended"]
        marks = [self._marks_s.get(name, end_s) for name in names]
        return Timings(*(after - before for before, after in pairwise(marks)))

    def _mark(self, name: str) -> None:
        self._marks_s[name] = self._clock()

    def _remaining_s(self) -> float:
        return max(self.request.deadline_s - self._clock(), 0.0)


class _Choice:
    """One of a generation's outputs: ids go to its text stream, text comes back."""

    def __init__(self, index: int, generation: Generation) -> None:
        self.index, self._generation = index, generation
        self.stream: TextStream | None = None
        self.end: ChoiceEnd | None = None
        self.completion_tokens = 0
        self._worker_end: WorkerFinished | None = None

    def feed(self, step: WorkerTokens) -> None:
        """New ids from the worker; ids after the text's end are dropped."""
        self._generation.mark_first_token()
        if self.end is None and self.stream is not None:
            self.completion_tokens += len(step.token_ids)
            self.stream.send(step.token_ids, last=False)

    def worker_ended(self, step: WorkerFinished) -> None:
        """The worker's end; the text's end follows when the tokenizer has flushed."""
        self._worker_end = step
        if self.end is None and self.stream is not None:
            self.stream.send((), last=True)

    def take(self, output: TextOutput | ServiceError) -> None:
        """Text from the tokenizer."""
        if not isinstance(output, ServiceError) and output.finished:
            self.end = self._ended(output)
        self._generation.take(self.index, output)

    def _ended(self, output: TextOutput) -> ChoiceEnd:
        if output.stop_match or output.end_tag:
            # What came after the match was never shown, and is not counted.
            self.completion_tokens = output.consumed_tokens
            reason = Finish.STOP_SEQUENCE if output.stop_match else Finish.STOP
            return ChoiceEnd(self.index, reason, output.stop_match)
        worker_end = self._worker_end
        if worker_end is None:
            return ChoiceEnd(self.index, Finish.STOP)
        by_token = (
            worker_end.reason is Finish.STOP_SEQUENCE and worker_end.stop_token_id is not None
        )
        match = str(worker_end.stop_token_id) if by_token else ""
        return ChoiceEnd(self.index, worker_end.reason, match)

    @property
    def ends(self) -> bool:
        """Whether the end has come, or is on its way through the tokenizer."""
        return self.end is not None or self._worker_end is not None

    def close(self) -> None:
        """Forget the text stream. Idempotent."""
        if self.stream is not None:
            self.stream.close()
