"""The running generations, each a task of its own: cancelled by name, joined, left and resumed."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial

from services.gateway.admission import Admission
from services.gateway.call_entry import entry_of_call
from services.gateway.conflict import conflict, other_content
from services.gateway.events import Failed, Finished, Heartbeat, Numbered, State
from services.gateway.generation import Generation
from services.gateway.interfaces import GenerationRequest, Placement
from services.gateway.kept_generations import KeptGenerations, Key
from services.gateway.mailbox import Mailbox, Outlet
from services.gateway.observer import Observer, Unobserved
from services.gateway.pulse import Pulse, Source
from services.gateway.replay import Replay, ReplayLimits
from services.gateway.retained import Retained
from services.gateway.retention import (
    Later,
    Retention,
    RetentionLimits,
    RetentionObserver,
    Unwatched,
)
from services.gateway.running import CANCEL_TIMEOUT_S, Running
from services.runtime.error_table import Reason
from services.runtime.errors import CancelledByPeerError, ServiceError, UnavailableError
from services.runtime.logs import get_logger

_log = get_logger()


class Registry:
    """Owns every running generation of this gateway, and what is kept of those that ended.

    Args:
        clock: monotonic, in seconds.
        later: calls back after so many seconds; the event loop's own where it is None.
    """

    def __init__(
        self,
        placement: Placement,
        admission: Admission,
        clock: Callable[[], float],
        render_timeout_s: float,
        observer: Observer | None = None,
        limits: RetentionLimits | None = None,
        watcher: RetentionObserver | None = None,
        later: Later | None = None,
    ) -> None:
        self._placement, self._admission, self._clock = placement, admission, clock
        self._render_timeout_s = render_timeout_s
        self._observer, self._watcher = observer or Unobserved(), watcher or Unwatched()
        self.limits = limits or RetentionLimits()
        self._later = later or (
            lambda delay_s, act: asyncio.get_running_loop().call_later(delay_s, act)
        )
        self._running: dict[Key, Running] = {}
        self.kept = KeptGenerations(self.limits)
        self._closed = False

    @property
    def running_count(self) -> int:
        """Generations under way, those that wait included."""
        return len(self._running)

    def stream(
        self,
        request: GenerationRequest,
        retention: Retention | None = None,
        heartbeat_s: float = 0.0,
    ) -> AsyncGenerator[Numbered, None]:
        """Run a generation, or join the one of this id, and yield its events.

        Without a retention, closing the generator cancels the generation and frees its slot.

        Args:
            retention: whether it can be joined and resumed, and for how long.
            heartbeat_s: of silence, after which there is a Heartbeat; 0: never.

        Raises GenerationConflictError where the owner has another one of this id; what admission raises where the call
        has no seat for it yet.
        """
        if retention is None:
            return self._ordinary(request, heartbeat_s)
        return self._retained(request, retention, heartbeat_s)

    async def resume(
        self, owner: str, generation_id: str, after: int, heartbeat_s: float = 0.0
    ) -> AsyncGenerator[Numbered, None]:
        """A Heartbeat that tells the state, then what followed the event with number `after`, to the end.

        Raises GenerationNotFoundError, GenerationExpiredError, InvalidArgumentError.
        """
        key, kept = (owner, generation_id), self.find(owner, generation_id, after)
        self._watcher.resumed()
        events = self._read(key, kept, after, heartbeat_s, is_back=True)
        async with aclosing(events):
            async for numbered in events:
                yield numbered

    def find(self, owner: str, generation_id: str, after: int = 0) -> Retained:
        """A generation that can be resumed there. Raises as `resume` does."""
        try:
            kept = self.kept.get((owner, generation_id))
            kept.replay.check(after)
        except ServiceError as error:
            if error.reason is Reason.GENERATION_EXPIRED:
                self._watcher.expired()
            raise
        return kept

    def knows(self, owner: str, generation_id: str) -> bool:
        """Whether a generation of this name runs, or is kept."""
        key = (owner, generation_id)
        return key in self._running or self.kept.find(key) is not None

    def cancel(self, owner: str, generation_id: str) -> bool:
        """End a running generation with reason CANCELLED; whether there was one."""
        running = self._running.get((owner, generation_id))
        return running is not None and running.cancel()

    def fail_all(self) -> None:
        """End every generation with an error that says why, and refuse new ones: the calls are about to be cut."""
        self._closed = True
        for key, running in self._running.items():
            running.fail(
                UnavailableError(
                    "This gateway is shutting down; the generation did not end in time.",
                    retry_delay_s=1.0,
                )
            )
            if self.kept.find(key) is not None:
                running.cancel()  # others end with their reader

    async def close(self) -> None:
        """Cancel what still runs, and wait for it. Idempotent."""
        self._closed = True
        for task in (tasks := [running.task for running in self._running.values()]):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_TIMEOUT_S)
        self.kept.close()

    async def _ordinary(
        self, request: GenerationRequest, heartbeat_s: float
    ) -> AsyncGenerator[Numbered, None]:
        key = (request.owner, request.generation_id)
        self._check_new(key)
        slow = partial(self._too_slow, key)
        sink = self._observer.begin(request.model)
        mailbox = Mailbox(sink, self.limits.max_unread_bytes, slow)
        running = self._begin(key, request, mailbox)
        pulse = self._pulse(heartbeat_s, mailbox, running)
        try:
            terminal = False
            while not terminal:
                events = await mailbox.take()
                for numbered in events:
                    yield numbered
                    terminal = isinstance(numbered.event, Finished | Failed)
                if pulse is not None:
                    beat = pulse.beat(events)
                    if beat is not None:
                        yield beat
        finally:
            if pulse is not None:
                pulse.close()
            running.task.cancel()
            try:
                await running.over()
            finally:  # also where the call is cancelled once more
                del self._running[key]

    async def _retained(
        self, request: GenerationRequest, retention: Retention, heartbeat_s: float
    ) -> AsyncGenerator[Numbered, None]:
        key, entry = (request.owner, request.generation_id), entry_of_call()
        kept, begun = await self._joinable(key, retention), None
        if kept is None:
            kept, begun = self._keep(key, request, retention)
        else:
            self._watcher.joined()
            if entry is not None:
                entry.close()  # it takes no seat
        try:
            async with aclosing(self._read(key, kept, 0, heartbeat_s)) as events:
                async for numbered in events:
                    yield numbered
        finally:
            if entry is not None and begun is not None and not begun.task.done():
                # The call goes, its message stays.
                begun.kept_bytes = entry.size_bytes
                self._admission.keep_bytes(entry.size_bytes)

    async def _joinable(self, key: Key, retention: Retention) -> Retained | None:
        kept = self.kept.find(key)
        if kept is None:
            return None
        if kept.retention.fingerprint != retention.fingerprint:
            raise other_content(key[1])
        if not kept.may_begin_anew:
            return kept
        running = self._running.get(key)
        if running is not None:  # it is being cancelled
            await running.over()
            await asyncio.sleep(0)  # its callbacks come after those who wait for it
            return await self._joinable(key, retention) if running.task.done() else None
        self.kept.forget(key)
        return None

    def _keep(
        self, key: Key, request: GenerationRequest, retention: Retention
    ) -> tuple[Retained, Running]:
        self._check_new(key)
        limits = ReplayLimits(self.limits.max_replay_bytes, self.limits.max_unread_bytes)
        sink = self._observer.begin(request.model)
        replay = Replay(limits, sink, partial(self._too_slow, key))
        running = self._begin(key, request, replay)
        expire = partial(self.kept.expire, key)
        kept = Retained(retention, replay, self._watcher, self._later, running.task.cancel, expire)
        self.kept.add(key, kept)
        running.task.add_done_callback(lambda task: self._kept_ended(key, kept, running))
        return kept, running

    def _kept_ended(self, key: Key, kept: Retained, running: Running) -> None:
        running.close()
        self._admission.free_bytes(running.kept_bytes)
        del self._running[key]
        if kept.leaves_nothing:
            self.kept.forget(key)
        else:
            kept.ended()
            self.kept.ended(key)

    async def _read(
        self, key: Key, kept: Retained, after: int, heartbeat_s: float, is_back: bool = False
    ) -> AsyncGenerator[Numbered, None]:
        reader, running, state = kept.attach(after), self._running.get(key), kept.replay.state
        pulse = self._pulse(heartbeat_s, reader, running, state, after)
        try:
            if is_back:
                ahead = running.ahead() if running is not None else 0
                yield Numbered(after, Heartbeat(state, ahead))
            while not reader.at_end:
                events = await reader.take()
                for numbered in events:
                    yield numbered
                if pulse is not None:
                    beat = pulse.beat(events)
                    if beat is not None:
                        yield beat
        finally:
            if pulse is not None:
                pulse.close()
            if kept.detach(reader) and running is not None:
                await running.over()

    def _check_new(self, key: Key) -> None:
        if self._closed:
            raise UnavailableError("This gateway is shutting down.", retry_delay_s=1.0)
        if key in self._running:
            raise conflict(key[1])

    def _begin(self, key: Key, request: GenerationRequest, outlet: Outlet) -> Running:
        entry = entry_of_call()
        seat = self._admission.take_seat(request.caller) if entry is None else entry.seat()
        generation = Generation(
            request.allowed(), self._placement, seat, self._clock, self._render_timeout_s, outlet
        )
        running = self._running[key] = Running(generation, seat)
        return running

    def _pulse(
        self,
        heartbeat_s: float,
        source: Source,
        running: Running | None,
        state: State = State.QUEUED,
        sequence: int = 0,
    ) -> Pulse | None:
        if not heartbeat_s or running is None:
            return None
        ahead, clock = running.ahead, self._clock
        return Pulse(heartbeat_s, source, ahead, clock, self._later, state, sequence)

    def _too_slow(self, key: Key) -> None:
        """What waits for the readers of a generation has passed its bound: nobody reads it."""
        running, limit = self._running.get(key), self.limits.max_unread_bytes
        if running is None:  # it is over already
            return
        self._watcher.too_slow()
        _log.info("generation ends: its reader is too slow", generation_id=key[1], limit=limit)
        running.fail(
            CancelledByPeerError(f"More than {limit} bytes waited to be read; it was cancelled.")
        )
        running.cancel()
