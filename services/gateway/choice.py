"""One of a generation's outputs."""

from dataclasses import replace
from typing import Protocol

from services.gateway.events import ChoiceEnd, Finish
from services.gateway.interfaces import TextOutput, TextStream, WorkerFinished, WorkerTokens
from services.runtime.errors import ServiceError


class ChoiceListener(Protocol):
    """What a choice tells its generation."""

    def first_token(self) -> None:
        """Ids have come from the worker; called for each step, the first one counts."""

    def take(self, index: int, output: TextOutput | ServiceError) -> None:
        """Text of this choice; its `end` is set before the last one is told."""


class Choice:
    """One of a generation's outputs: ids go to its text stream, text comes back."""

    def __init__(self, index: int, listener: ChoiceListener) -> None:
        self.index, self._listener = index, listener
        self.stream: TextStream | None = None
        self.end: ChoiceEnd | None = None
        self.completion_tokens = 0
        self._has_called = False
        self._worker_end: WorkerFinished | None = None

    def feed(self, step: WorkerTokens) -> None:
        """New ids from the worker; ids after the text's end are dropped."""
        self._listener.first_token()
        if self.end is None and self.stream is not None:
            self.completion_tokens += len(step.token_ids)
            self.stream.send(step.token_ids, last=False, logprobs=step.logprobs)

    def worker_ended(self, step: WorkerFinished) -> None:
        """The worker's end; the text's end follows when the tokenizer has flushed."""
        self._worker_end = step
        if self.end is None and self.stream is not None:
            self.stream.send((), last=True)

    def take(self, output: TextOutput | ServiceError) -> None:
        """Text from the tokenizer."""
        if not isinstance(output, ServiceError):
            self._has_called = self._has_called or bool(output.calls)
            if output.finished:
                self.end = self._with_calls(self._ended(output))
        self._listener.take(self.index, output)

    def _with_calls(self, end: ChoiceEnd) -> ChoiceEnd:
        """An output that ended by itself and calls tools has ended in order to call them."""
        by_itself = end.reason in (Finish.STOP, Finish.STOP_SEQUENCE)
        return replace(end, reason=Finish.TOOL_CALLS) if self._has_called and by_itself else end

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
        return ChoiceEnd(self.index, worker_end.reason, match, by_token)

    def close(self) -> None:
        """Forget the text stream. Idempotent."""
        if self.stream is not None:
            self.stream.close()
