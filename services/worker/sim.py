"""A simulator in the engine's place, with the cost model of a device. It knows no model and says `sim`."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import inf

from services.runtime.errors import EngineDeadError, UnavailableError, UnimplementedError
from services.runtime.logs import get_logger
from services.worker.engine import Job, Load, Step
from services.worker.model import ModelFacts
from services.worker.sim_costs import SimCosts, SimLimits
from services.worker.sim_faults import SimFaults
from services.worker.sim_scheduler import Scheduler, Work
from services.worker.sim_sequence import PromptNames, SimSequence
from services.worker.sim_stream import SimStream
from services.worker.sim_tokens import Output

_log = get_logger()

STEPS_AT_ONCE = 16
"""A simulator that is late catches up with so many steps before it lets others run."""
TICK_S = 0.001
"""Steps that do not go together end at most so much late; the next ones make up for it."""


@dataclass(frozen=True)
class SimConfig:
    """What is simulated."""

    costs: SimCosts
    limits: SimLimits
    output_tokens: int
    """Position of the end token, unless min_tokens or ignore_eos forbid it."""
    synchronous: bool = True
    """All running sequences advance in one step. False: each by itself, at the same pace."""
    faults: SimFaults = field(default_factory=SimFaults)


class SimEngine:
    """See engine.Engine. Runs in the worker's event loop; a task of its own lives while anything runs or waits.

    `kill`, `stall` and `slow_factor` are for fault tests.
    """

    name = "sim"

    def __init__(
        self,
        facts: ModelFacts,
        config: SimConfig,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._facts, self._config = facts, config
        self._clock, self._sleep = clock, sleep
        self._start_count = 0
        self._reset(SimFaults())

    def _reset(self, faults: SimFaults) -> None:
        largest = self._facts.images.max_tokens if self._facts.images else 0
        self._scheduler = Scheduler(self._config.limits, largest)
        self._streams: set[SimStream] = set()
        self._arrivals, self._flight_numbers = count(), count()
        self._flights: list[tuple[float, int, Work]] = []  # a heap by the time at which they land
        self._device_free_s = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._stepping: asyncio.Task[None] | None = None
        self._stall: tuple[float, float] | None = None  # since when, until when
        self._faults, self.slow_factor = faults, faults.slow_factor
        self._token_count = 0
        self._dead = asyncio.Event()
        self._open = False
        self.last_step_s = 0.0

    async def start(self) -> None:
        """Say in the log what this is. Raises RuntimeError where a fault was planned."""
        self._start_count += 1
        planned = self._config.faults
        if self._start_count <= planned.failing_starts:
            raise RuntimeError("the simulator fails to start, as planned")
        engine_number = self._start_count - planned.failing_starts
        with_faults = not planned.engine_count or engine_number <= planned.engine_count
        self._reset(planned if with_faults else SimFaults())
        self._open, self.last_step_s = True, self._clock()
        if self._faults.die_after_s is not None:
            self._own(asyncio.create_task(self._die_after(self._faults.die_after_s)))
        _log.warning("the engine is a SIMULATOR: its tokens mean nothing", engine=self.name)

    def load(self) -> Load:
        """See engine.Engine."""
        scheduler = self._scheduler
        return Load(len(scheduler.running), len(scheduler.waiting), scheduler.kv_usage_ratio)

    async def died(self) -> None:
        """Return after `kill`."""
        await self._dead.wait()

    def kill(self) -> None:
        """Die, as an engine process would."""
        self._dead.set()
        self._end("The engine ended while this generation ran.")

    def stall(self, seconds: float = 0.0) -> None:
        """Stop the steps, for a time or (0) for ever."""
        now = self._clock()
        self._stall = (now, now + seconds if seconds else inf)

    async def close(self) -> None:
        """End what runs."""
        self._end("The engine was closed while this generation ran.")
        tasks, self._tasks = self._tasks, set()
        if tasks:
            await asyncio.wait(tasks)

    def _end(self, message: str) -> None:
        self._open = False
        for task in self._tasks:
            task.cancel()
        for stream in self._streams:
            stream.fail(EngineDeadError(message, retry_delay_s=1.0))

    async def generate(self, job: Job) -> AsyncGenerator[Step, None]:
        """See engine.Engine. Raises UnimplementedError for structured output, which a simulator cannot keep."""
        if job.sampling.constraint is not None:
            raise UnimplementedError(
                "structured output on the simulator",
                field=f"sampling.structured_output.{job.sampling.constraint.kind}",
            )
        if self._dead.is_set():
            raise EngineDeadError("The engine has ended.", retry_delay_s=1.0)
        if not self._open:
            raise UnavailableError("The engine is not loaded.", retry_delay_s=1.0)
        scheduler, streams = self._scheduler, self._streams
        sequences = self._sequences(job)
        stream = SimStream(job, sequences, self._facts.vocabulary_size)
        streams.add(stream)
        for sequence in sequences:
            sequence.tell = stream.tell
            scheduler.add(sequence)
        try:
            self._wake()
            while stream.open:
                await stream.wait()
                for step in stream.take():
                    yield step
        finally:
            streams.discard(stream)
            for sequence in sequences:
                scheduler.remove(sequence)

    def _sequences(self, job: Job) -> list[SimSequence]:
        prompt, now = PromptNames(job, self._config.limits.block_tokens), self._clock()
        return [
            SimSequence(job, self._output(job, index), prompt, next(self._arrivals), now)
            for index in range(job.sampling.n)
        ]

    def _output(self, job: Job, choice_index: int) -> Output:
        return Output(job, choice_index, self._facts, self._config.output_tokens)

    def _wake(self) -> None:
        """Something has come: begin its step, or leave it to the step under way to end."""
        if self._stepping is None or self._stepping.done():
            self._device_free_s = self._clock()
        elif self._config.synchronous:
            return
        else:  # asleep, maybe for longer than the new sequence's first step
            self._stepping.cancel()
        self._stepping = asyncio.create_task(self._steps())
        self._own(self._stepping)

    def _own(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:  # a fault of the simulator's own: nobody may wait for ever
            _log.error("the simulator failed", exc_info=error)
            self.kill()

    async def _steps(self) -> None:
        """Run the device until nothing runs or waits. Its state is the object's: it may be cancelled and run again."""
        free_of_cost = self._config.costs.step_s == 0
        # Steps that each have a time of their own would wake the loop for every token.
        pause_s = 0.0 if self._config.synchronous or free_of_cost else TICK_S
        at_once = 0
        while self._take_off():
            delay_s = self._flights[0][0] - self._clock()
            at_once += 1
            if delay_s > 0 or at_once > STEPS_AT_ONCE or free_of_cost:
                await self._sleep(max(0.0, delay_s, pause_s))
                at_once = 0
            if self._stall is not None:
                await self._stand_still(*self._stall)
            self._land(self._clock())

    def _take_off(self) -> bool:
        """Begin steps for all that are in none. False: nothing is under way."""
        synchronous, costs = self._config.synchronous, self._config.costs
        if not (synchronous and self._flights):
            now = self._clock()
            if synchronous and not self._scheduler.running:
                self._device_free_s = now  # it stood idle
            begin_s = self._device_free_s if synchronous else now
            for work in self._scheduler.schedule(begin_s, together=synchronous):
                sequences = len(work.shares) if synchronous else len(self._scheduler.running)
                duration_s = costs.step_duration_s(sequences, work.prefill_tokens, work.images)
                if not synchronous:
                    begin_s = work.shares[0][0].ready_s
                work.due_s = begin_s + duration_s * self.slow_factor
                heappush(self._flights, (work.due_s, next(self._flight_numbers), work))
        return bool(self._flights)

    def _land(self, now: float) -> None:
        """End the steps whose time has come."""
        while self._flights and self._flights[0][0] <= now:
            due_s, _, work = heappop(self._flights)
            self._device_free_s = due_s
            produced = self._scheduler.finish(work)
            self._token_count += len(produced)
            for sequence in produced:
                sequence.ready_s = due_s
                if sequence.tell is not None:
                    sequence.tell()
            self.last_step_s = now
        self._trip_faults()

    def _trip_faults(self) -> None:
        """Begin what was planned for this many tokens."""
        faults, tokens = self._faults, self._token_count
        if faults.die_after_tokens is not None and tokens >= faults.die_after_tokens:
            _log.warning("the simulator dies, as planned", tokens=tokens)
            self.kill()
        elif faults.stall_after_tokens is not None and tokens >= faults.stall_after_tokens:
            _log.warning("the simulator stalls, as planned", tokens=tokens)
            self._faults = faults.model_copy(update={"stall_after_tokens": None})
            self.stall(faults.stall_s)

    async def _die_after(self, seconds: float) -> None:
        await self._sleep(seconds)
        _log.warning("the simulator dies, as planned", after_s=seconds)
        self.kill()

    async def _stand_still(self, since_s: float, until_s: float) -> None:
        """No step ends before the stall does, and none makes up for it."""
        if until_s == inf:
            await asyncio.Event().wait()  # until the engine is closed
        await self._sleep(until_s - self._clock())
        self._stall = None
        lost_s = self._clock() - since_s
        self._device_free_s += lost_s
        for _, _, work in self._flights:
            work.due_s += lost_s
        self._flights = [(work.due_s, number, work) for _, number, work in self._flights]
