"""A simulator in the engine's place: deterministic tokens, paced by a clock. It knows no model and says `sim`."""

import asyncio
import hashlib
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from services.runtime.errors import EngineDeadError, UnimplementedError
from services.runtime.logs import get_logger
from services.worker.engine import (
    Finished,
    Job,
    Load,
    Logprob,
    PositionLogprobs,
    Reason,
    Started,
    Step,
    Tokens,
)
from services.worker.model import ModelFacts

_log = get_logger()


@dataclass(frozen=True)
class SimCosts:
    """How long things take."""

    step_s: float
    """Between two tokens of one generation."""
    prefill_tokens_per_s: float
    """Each generation by itself."""
    output_tokens: int
    """Position of the end token, unless min_tokens or ignore_eos forbid it."""


def trace_token(trace_key: str, choice_index: int, position: int, ids: range) -> int:
    """The simulator's token at a position: a function of the key, the choice and the position alone.

    So loss, duplication, reordering and cross-talk are all visible to who knows the key.
    """
    seed = f"{position}/{choice_index}/{trace_key}".encode()
    number = int.from_bytes(hashlib.blake2b(seed, digest_size=8).digest(), "big")
    return ids[number % len(ids)]


class SimEngine:
    """See engine.Engine. At most `slots` generations run; the next ones wait, first come, first served."""

    name = "sim"

    def __init__(
        self,
        facts: ModelFacts,
        costs: SimCosts,
        slots: int,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._facts, self._costs = facts, costs
        self._clock, self._sleep = clock, sleep
        self._slots, self._slot_count = asyncio.Semaphore(slots), slots
        self._running = self._waiting = 0
        self._dead = asyncio.Event()

    async def start(self) -> None:
        """Say in the log what this is."""
        _log.warning("the engine is a SIMULATOR: its tokens mean nothing", engine=self.name)

    def load(self) -> Load:
        """See engine.Engine; the share of slots stands for the cache's."""
        return Load(self._running, self._waiting, self._running / self._slot_count)

    async def died(self) -> None:
        """Return after `kill`."""
        await self._dead.wait()

    def kill(self) -> None:
        """Die, as an engine process would: for fault tests."""
        self._dead.set()

    async def close(self) -> None:
        """Nothing is held."""

    async def generate(self, job: Job) -> AsyncGenerator[Step, None]:
        """See engine.Engine. Raises UnimplementedError for structured output, which a simulator cannot keep."""
        if job.sampling.constraint is not None:
            raise UnimplementedError("structured_output on the simulator")
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        self._running += 1
        try:
            async with aclosing(self._run(job)) as steps:
                async for step in steps:
                    yield step
        finally:
            self._running -= 1
            self._slots.release()

    async def _run(self, job: Job) -> AsyncGenerator[Step, None]:
        prompt_tokens = len(job.prompt.token_ids)
        begin_s = self._clock() + prompt_tokens / self._costs.prefill_tokens_per_s
        await self._until(begin_s)
        yield Started(prompt_tokens, 0)
        choices = [self._output(job, index) for index in range(job.sampling.n)]
        position, total = 0, max(len(ids) for ids, _ in choices)
        while position < total:
            await self._until(begin_s + position * self._costs.step_s)
            end = position + self._due(begin_s, position)
            for index, (ids, finished) in enumerate(choices):
                piece = ids[position:end]
                if piece:
                    yield Tokens(index, position, piece, _logprobs(piece, job.sampling.logprobs))
                if position < len(ids) <= end:
                    yield finished
            position = end

    async def _until(self, time_s: float) -> None:
        await self._sleep(max(0.0, time_s - self._clock()))
        if self._dead.is_set():
            raise EngineDeadError("The engine ended while this generation ran.", retry_delay_s=1.0)

    def _due(self, begin_s: float, position: int) -> int:
        """Tokens due by now, at least one: a loop that is late catches up in one step."""
        if not self._costs.step_s:
            return 1
        return max(1, math.floor((self._clock() - begin_s) / self._costs.step_s) + 1 - position)

    def _output(self, job: Job, choice_index: int) -> tuple[list[int], Finished]:
        """All ids of a choice, and how it ends."""
        sampling, ends = job.sampling, self._facts.end_token_ids
        natural = max(self._costs.output_tokens, sampling.min_tokens)
        stops = frozenset(sampling.stop_token_ids)
        ids: list[int] = []
        while len(ids) < sampling.max_tokens:
            position = len(ids)
            if ends and position == natural and not sampling.ignore_eos:
                ids.append(ends[0])
                return ids, Finished(choice_index, Reason.STOP, len(ids), ends[0])
            token = trace_token(job.trace_key, choice_index, position, self._facts.ordinary_ids)
            ids.append(token)
            if token in stops and position >= sampling.min_tokens:
                return ids, Finished(choice_index, Reason.STOP_SEQUENCE, len(ids), token)
        return ids, Finished(choice_index, Reason.LENGTH, len(ids))


def _logprobs(ids: list[int], count: int | None) -> list[PositionLogprobs]:
    if count is None:
        return []
    certain = [Logprob(token, 0.0) for token in ids]  # its one token has probability 1
    return [PositionLogprobs(entry, [entry] if count else []) for entry in certain]
