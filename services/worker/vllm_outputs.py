"""vLLM's outputs -> steps. Knows vLLM's objects by their attributes; imports nothing of it."""

from collections.abc import Iterator, Sequence
from typing import Any

from services.runtime.errors import InternalError
from services.worker.engine import (
    Finished,
    Logprob,
    PositionLogprobs,
    Reason,
    Sampling,
    Started,
    Step,
    Tokens,
)


class OutputReader:
    """Turns the RequestOutputs (DELTA) of one request into its steps."""

    def __init__(self, sampling: Sampling, end_token_ids: Sequence[int], copies: int) -> None:
        """`copies`: choices that the engine's one choice stands for; 1 where it has its own for each."""
        self._own_stops = frozenset(sampling.stop_token_ids)
        self._ends = frozenset() if sampling.ignore_eos else frozenset(end_token_ids)
        self._logprobs = sampling.logprobs
        self._copies = copies
        self._counts = dict.fromkeys(range(sampling.n), 0)
        self._started = False

    def read(self, output: Any, prompt_tokens: int) -> Iterator[Step]:
        """The steps in one output. Raises InternalError where the engine failed this request alone."""
        if not self._started:
            self._started = True
            yield Started(prompt_tokens, output.num_cached_tokens or 0)
        for completion in output.outputs:
            for copy in range(self._copies):
                yield from self._choice(completion, completion.index + copy)

    def _choice(self, completion: Any, index: int) -> Iterator[Step]:
        ids = list(completion.token_ids)
        if completion.finish_reason == "error":
            raise InternalError
        if ids:
            position = self._counts[index]
            self._counts[index] += len(ids)
            yield Tokens(index, position, ids, self._position_logprobs(completion, ids))
        if completion.finish_reason is not None:
            reason, stop = self._reason(completion, ids)
            yield Finished(index, reason, self._counts[index], stop)

    def _reason(self, completion: Any, ids: Sequence[int]) -> tuple[Reason, int | None]:
        if completion.finish_reason == "length":
            return Reason.LENGTH, None
        if completion.finish_reason != "stop":
            return Reason.CANCELLED, None
        # vLLM's stop_reason is None for the first end token, and the id for all others.
        stop = completion.stop_reason if isinstance(completion.stop_reason, int) else None
        if stop is None and ids:
            stop = ids[-1]
        own = stop in self._own_stops and stop not in self._ends
        return Reason.STOP_SEQUENCE if own else Reason.STOP, stop

    def _position_logprobs(self, completion: Any, ids: Sequence[int]) -> list[PositionLogprobs]:
        count = self._logprobs
        if count is None or not completion.logprobs:
            return []
        positions = []
        # In DELTA outputs the list is as long as the ids.
        for token, entries in zip(ids, completion.logprobs, strict=True):
            ranked = sorted(entries.items(), key=lambda item: item[1].rank)[:count]
            top = [Logprob(other, entry.logprob) for other, entry in ranked]
            positions.append(PositionLogprobs(Logprob(token, entries[token].logprob), top))
        return positions
