"""Who keeps a generation alive, for how long, and what becomes of it when nobody comes back."""

from dataclasses import dataclass, field

import pytest
from timers import Timers

from services.gateway.events import (
    Accepted,
    ChoiceEnd,
    Failed,
    Finish,
    Finished,
    Text,
    Timings,
    Usage,
)
from services.gateway.replay import Replay
from services.gateway.retained import MAX_READERS, Retained
from services.gateway.retention import Retention, Unwatched
from services.runtime.errors import (
    CancelledByPeerError,
    EngineDeadError,
    InvalidArgumentError,
    ServiceError,
)

KEEP_S, REPLAY_S = 10.0, 20.0


def finished(reason: Finish = Finish.STOP) -> Finished:
    return Finished([ChoiceEnd(0, reason)], Usage(), Timings())


@dataclass
class Kept:
    """A retained generation, and what was done to it."""

    keep_s: float = KEEP_S
    timers: Timers = field(default_factory=Timers)
    replay: Replay = field(default_factory=Replay)
    cancels: int = 0
    expired: int = 0

    def __post_init__(self) -> None:
        retention = Retention(b"", self.keep_s, REPLAY_S)
        later = self.timers.later
        self.it = Retained(retention, self.replay, Unwatched(), later, self.cancel, self.expire)
        self.replay.put(Accepted("g", "m", 3, 0))

    def cancel(self) -> None:
        self.cancels += 1

    def expire(self) -> None:
        self.expired += 1

    def end(self, event: Finished | Failed | None = None) -> None:
        self.replay.put(event or finished())
        self.it.ended()


def test_it_is_cancelled_when_nobody_came_back_in_time():
    kept = Kept()
    assert not kept.it.detach(kept.it.attach(0))
    kept.timers.advance(KEEP_S - 1)
    assert kept.cancels == 0
    kept.timers.advance(2)
    assert kept.cancels == 1


def test_a_reader_that_comes_back_stops_the_clock():
    kept = Kept()
    kept.it.detach(kept.it.attach(0))
    kept.timers.advance(KEEP_S - 1)
    second = kept.it.attach(1)
    kept.timers.advance(10 * KEEP_S)
    assert kept.cancels == 0
    kept.it.detach(second)
    kept.timers.advance(KEEP_S)
    assert kept.cancels == 1


def test_the_clock_runs_only_when_the_last_of_several_readers_went():
    kept = Kept()
    readers = [kept.it.attach(0) for _ in range(3)]
    for reader in readers[:2]:
        kept.it.detach(reader)
    kept.timers.advance(10 * KEEP_S)
    assert kept.cancels == 0
    kept.it.detach(readers[2])
    kept.timers.advance(KEEP_S)
    assert kept.cancels == 1


def test_without_keeping_it_is_cancelled_at_once():
    kept = Kept(keep_s=0)
    assert kept.it.detach(kept.it.attach(0))
    assert kept.cancels == 1


def test_an_ended_one_is_kept_from_its_end_or_its_last_reader_s_going():
    kept = Kept()
    reader = kept.it.attach(0)
    kept.end()
    kept.timers.advance(10 * REPLAY_S)
    assert kept.expired == 0
    assert not kept.it.detach(reader)
    kept.timers.advance(REPLAY_S - 1)
    again = kept.it.attach(0)
    kept.timers.advance(REPLAY_S)
    kept.it.detach(again)
    kept.timers.advance(REPLAY_S)
    assert (kept.expired, kept.cancels) == (1, 0)


def test_it_may_end_while_nobody_reads_and_is_kept_on():
    kept = Kept()
    kept.it.detach(kept.it.attach(0))
    kept.end()
    kept.timers.advance(REPLAY_S - 1)
    assert (kept.cancels, kept.expired) == (0, 0)
    kept.timers.advance(1)
    assert (kept.cancels, kept.expired) == (0, 1)


def test_a_reader_that_goes_with_the_end_cancels_nothing():
    kept = Kept(keep_s=0)
    reader = kept.it.attach(0)
    kept.replay.put(finished())
    assert not kept.it.detach(reader)
    kept.it.ended()
    assert kept.cancels == 0
    assert kept.timers.waiting == 1


async def test_one_reader_too_many_takes_the_place_of_one_that_hangs():
    kept = Kept()
    readers = [kept.it.attach(0) for _ in range(MAX_READERS)]
    kept.it.attach(0)
    with pytest.raises(CancelledByPeerError):
        await readers[0].take()
    assert await readers[1].take()
    kept.it.detach(readers[0])
    for reader in readers[1:]:
        kept.it.detach(reader)
    kept.timers.advance(KEEP_S)
    assert kept.cancels == 0


def test_a_cursor_that_is_refused_does_not_stop_the_clock():
    kept = Kept()
    kept.it.detach(kept.it.attach(0))
    with pytest.raises(InvalidArgumentError):
        kept.it.attach(99)
    kept.timers.advance(KEEP_S)
    assert kept.cancels == 1


@pytest.mark.parametrize(
    ("left", "end", "anew"),
    [
        (True, finished(Finish.CANCELLED), True),
        (False, finished(Finish.CANCELLED), False),
        (True, finished(), False),
        (False, Failed(EngineDeadError("gone")), True),
        (False, Failed(InvalidArgumentError("x", 1, "2")), False),
    ],
    ids=["left", "cancelled by word", "ended just before", "may be retried", "may not"],
)
def test_the_same_request_begins_anew_only_where_the_end_was_no_answer(left, end, anew):
    kept = Kept(keep_s=0)
    reader = kept.it.attach(0)
    if left:
        kept.it.detach(reader)
    kept.end(end)
    assert kept.it.may_begin_anew is anew


@pytest.mark.parametrize(
    ("error", "nothing"),
    [(InvalidArgumentError("x", 1, "2"), True), (CancelledByPeerError("cancelled"), False)],
    ids=["refused", "cancelled by word"],
)
def test_what_was_never_accepted_is_not_worth_keeping(error: ServiceError, nothing: bool):
    kept = Kept()
    kept.replay = Replay()
    kept.it.replay = kept.replay
    kept.replay.put(Failed(error))
    assert kept.it.leaves_nothing is nothing
    accepted = Kept()
    accepted.replay.put(Text(0, "x"))
    accepted.end(Failed(error))
    assert not accepted.it.leaves_nothing
