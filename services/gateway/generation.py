"""One generation's way through the system: render, place, relay ids to text, end exactly once."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

from services.gateway.choice import Choice
from services.gateway.conflict import conflict
from services.gateway.events import (
    Accepted,
    ChoiceEnd,
    Failed,
    Finish,
    Finished,
    Reasoning,
    Started,
    Text,
    Usage,
)
from services.gateway.field_names import renamed
from services.gateway.interfaces import (
    GenerationRequest,
    Placement,
    TextOutput,
    Worker,
    WorkerFinished,
    WorkerTokens,
)
from services.gateway.mailbox import Outlet
from services.gateway.marks import Marks
from services.gateway.prompt_room import answer_room
from services.gateway.raw_prompt import as_written
from services.gateway.renderers import Renderers
from services.gateway.rendering import Rendering
from services.gateway.seat import Seat
from services.gateway.session_interfaces import PromptRendering
from services.gateway.time_limit import TimeLimit
from services.gateway.worker_runs import WorkerRuns
from services.runtime.errors import (
    CancelledByPeerError,
    DeadlineExceededError,
    GenerationConflictError,
    InternalError,
    ServiceError,
)
from services.runtime.logs import get_logger

_log = get_logger()


class Generation:
    """A running generation. `run` is a task owned by the registry; readers take what comes to `mailbox`."""

    def __init__(
        self,
        request: GenerationRequest,
        placement: Placement,
        seat: Seat,
        clock: Callable[[], float],
        render_timeout_s: float,
        mailbox: Outlet,
    ) -> None:
        self.request = request
        self._placement, self._seat = placement, seat
        self._limit = TimeLimit(request.deadline_s, clock)
        renderers = Renderers(placement, request.model, clock)
        rendering: PromptRendering = (
            Rendering(request, renderers, clock, render_timeout_s)
            if request.turn is None
            else request.turn.rendering(renderers, clock, render_timeout_s)
        )
        self.mailbox = mailbox
        self._choices: list[Choice] = []
        self._runs = WorkerRuns(request, placement, rendering, self._limit, self)
        self._cached_tokens = 0
        self._marks = Marks(clock)
        self._accepted = False

    async def run(self) -> None:
        """Live from admission to the terminal event, which is always put, whatever happens.

        Cancelling the task ends the generation with reason CANCELLED and the text so far.
        """
        try:
            async with asyncio.timeout(self._limit.patience_s()):
                await self._run()
        except ServiceError as error:
            request = self.request
            written = renamed(as_written(error, request.prompt), request.field_names)
            self.mailbox.put(Failed(written, self._usage()))
        except TimeoutError:
            self.mailbox.put(self._timed_out())
        except asyncio.CancelledError:
            cancelled = Failed(CancelledByPeerError("Cancelled before it was accepted."))
            self.mailbox.put(self._finished() if self._accepted else cancelled)
            raise
        # The top of the task: whatever it is, the reader must hear of an end, and the log of the cause.
        except Exception:  # noqa: BLE001
            _log.exception("generation failed", generation_id=self.request.generation_id)
            self.mailbox.put(Failed(InternalError(), self._usage()))
        finally:
            for choice in self._choices:
                choice.close()

    async def _run(self) -> None:
        turn = self.request.turn
        # Not held any more when the client hears of the end: its next turn may come at once.
        async with nullcontext() if turn is None else turn.hold():
            end = await self._admitted()
            if turn is not None and not end.timed_out_unheard:
                ids = self._runs.ids[: self._choices[0].completion_tokens]
                await turn.commit(end.choices[0], ids, self._runs.worker)
        self.mailbox.put(self._timed_out() if end.timed_out_unheard else self._finished())

    async def _admitted(self) -> Finished:
        try:
            failure = await self._placed()
        finally:
            usage = self._usage()
            if self._runs.begun:  # else the key pays nothing
                self._seat.used(usage.prompt_tokens + usage.completion_tokens)
            self._seat.close()  # before the client hears of the end
        if isinstance(failure, GenerationConflictError):  # which the worker told in its own words
            raise conflict(self.request.generation_id)
        if failure is not None:
            raise failure
        return self._finished()

    async def _placed(self) -> ServiceError | None:
        """Wait for a place and run there; returns what failed on a worker, None where all went well."""
        async with self._seat.place(self.request) as ahead:
            self._marks.mark("admitted")
            await self._runs.render()
            turn = self.request.turn
            prefer = "" if turn is None else turn.worker
            return await self._runs.run(prefer, partial(self._on_worker, ahead))

    def _on_worker(self, ahead: int, worker: Worker) -> None:
        """The first worker is chosen."""
        room = answer_room(worker, self._runs.rendered, self.request.max_tokens)
        self._seat.rendered(self.request, self._prompt_tokens, room)
        self._open_texts()
        self._accept(ahead)

    @property
    def _prompt_tokens(self) -> int:
        return len(self._runs.rendered.token_ids)

    def _open_texts(self) -> None:
        request = self.request
        options = request.text_options(self._runs.rendered.thinking_closed)
        self._choices = [Choice(index, self) for index in range(request.choice_count)]
        for choice in self._choices:
            choice.stream = self._placement.open_text(
                request.model, options, choice.index, choice.take
            )

    def _accept(self, ahead: int) -> None:
        request, self._accepted = self.request, True
        session = "" if request.turn is None else request.turn.session_name
        self.mailbox.put(
            Accepted(request.generation_id, request.model, self._prompt_tokens, ahead, session)
        )

    def started(self, worker: str, cached_tokens: int) -> None:
        """See StepListener."""
        self._cached_tokens = cached_tokens
        self.mailbox.put(Started(worker, cached_tokens))

    def tokens(self, step: WorkerTokens) -> None:
        """See StepListener."""
        self._choices[step.choice_index].feed(step)

    def choice_ended(self, step: WorkerFinished) -> None:
        """See StepListener."""
        self._choices[step.choice_index].worker_ended(step)

    def pushed(self) -> None:
        """See StepListener."""
        self._marks.mark("rendered")

    def take(self, index: int, output: TextOutput | ServiceError) -> None:
        """Tokenizer -> reader; called by the choices."""
        if isinstance(output, ServiceError):
            self._runs.end(output)
            return
        if output.reasoning:
            self.mailbox.put(Reasoning(index, output.reasoning))
        if output.text:
            self.mailbox.put(Text(index, output.text, output.logprobs))
        for call in output.calls:
            self.mailbox.put(call)
        if output.action is not None:
            self.mailbox.put(output.action)
        if output.finished and all(choice.end is not None for choice in self._choices):
            self._runs.end()

    def fail(self, error: ServiceError) -> None:
        """Tell the reader this end, wherever the generation is; closing the stream then frees what it holds."""
        self.mailbox.put(Failed(error, self._usage()))

    def first_token(self) -> None:
        """Note when the first token came from the worker."""
        self._marks.mark("first")

    def _finished(self, otherwise: Finish = Finish.CANCELLED) -> Finished:
        """`otherwise`: why choices ended that have no end of their own."""
        ends = [choice.end or ChoiceEnd(choice.index, otherwise) for choice in self._choices]
        ends = ends or [ChoiceEnd(0, otherwise)]
        turn = self.request.turn
        committed = turn is not None and turn.committed
        return Finished(ends, self._usage(), self._marks.timings(), committed)

    def _timed_out(self) -> Finished | Failed:
        """The end at the time limit: the text so far stands, if there was a token."""
        end = self._finished(Finish.TIME_LIMIT)
        if not end.timed_out_unheard:
            return end
        error = DeadlineExceededError("The deadline passed before the first token.")
        return Failed(error, end.usage)

    def _usage(self) -> Usage:
        completion = sum(choice.completion_tokens for choice in self._choices)
        return Usage(self._prompt_tokens, completion, self._cached_tokens)
