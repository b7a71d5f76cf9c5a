"""Generations that are joined, left and resumed, and what they hold of the gateway meanwhile."""

import asyncio
from dataclasses import replace

import pytest
from scripted import (
    REQUEST,
    ScriptedPlacement,
    ScriptedTokenizer,
    ScriptedWorker,
    WorkerFinished,
    WorkerTokens,
)
from timers import Timers

from services.gateway.admission import Admission
from services.gateway.admission_limits import AdmissionLimits
from services.gateway.call_entry import bind_entry
from services.gateway.caller import Caller, Limits
from services.gateway.events import Failed, Finish, Finished, Heartbeat, Numbered, State, Text
from services.gateway.interfaces import GenerationRequest, WorkerStarted
from services.gateway.registry import Registry
from services.gateway.retention import Retention, RetentionLimits
from services.runtime.error_table import Reason
from services.runtime.errors import (
    EngineDeadError,
    GenerationConflictError,
    GenerationExpiredError,
    GenerationNotFoundError,
    InvalidArgumentError,
    OverloadedError,
    RateLimitedError,
    UnavailableError,
)

KEEP_S = 10.0
STARTED = WorkerStarted(cached_tokens=2)
END = WorkerFinished(0, Finish.LENGTH, None, 3)
KEEP = Retention(b"same", KEEP_S, KEEP_S)
CALLER = Caller("o", Limits(requests_per_minute=100), "key")


class Front:
    """A registry before one scripted worker; timers move by hand."""

    def __init__(self, *steps: object, seats: int = 4, limits: RetentionLimits | None = None):
        clock = asyncio.get_running_loop().time
        self.worker = ScriptedWorker(list(steps))
        self.tokenizer = ScriptedTokenizer()
        self.timers = Timers()
        self.admission = Admission(AdmissionLimits(max_running=seats, max_waiting=0), clock)
        placement = ScriptedPlacement([self.tokenizer], [self.worker])
        self.registry = Registry(
            placement, self.admission, clock, 1.0, limits=limits, later=self.timers.later
        )

    def request(self, **fields: object) -> GenerationRequest:
        deadline_s = asyncio.get_running_loop().time() + 60
        return replace(REQUEST, **{"deadline_s": deadline_s, "caller": CALLER, **fields})

    def stream(self, retention: Retention | None = KEEP, **fields: object):
        return self.registry.stream(self.request(**fields), retention)

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    @property
    def requests_taken(self) -> float:
        return 100 - self.admission.allowance(CALLER).levels()[0].remaining


def text_of(events: list[Numbered]) -> str:
    return "".join(n.event.text for n in events if isinstance(n.event, Text))


async def all_of(stream) -> list[Numbered]:
    async with asyncio.timeout(10):
        return [numbered async for numbered in stream]


async def some(stream, count: int) -> list[Numbered]:
    async with asyncio.timeout(10):
        return [await anext(stream) for _ in range(count)]


ENDLESS = (STARTED, WorkerTokens(0, [7]), 60.0, END)


async def test_a_call_that_goes_leaves_seat_place_and_bytes_with_the_generation():
    front = Front(*ENDLESS)
    with front.admission.enter(CALLER, 5000) as entry:
        bind_entry(entry)
        stream = front.stream()
        await some(stream, 3)
        await stream.aclose()
    admission = front.admission
    assert (admission.seat_count, admission.running_count, admission.held_bytes) == (1, 1, 5000)
    front.registry.cancel("o", "g")
    await front.settle()
    assert (admission.seat_count, admission.running_count, admission.held_bytes) == (0, 0, 0)
    assert front.worker.running == 0


async def test_a_join_takes_nothing_but_its_own_bytes():
    front = Front(*ENDLESS, seats=1)
    first = front.stream()
    await some(first, 3)
    assert front.admission.seat_count == 1
    with front.admission.enter(CALLER, 100, joins=True) as entry:
        bind_entry(entry)
        joined = front.stream()
        assert text_of(await some(joined, 3)) == "7 "
        assert (front.admission.seat_count, front.admission.held_bytes) == (1, 100)
        assert front.requests_taken == 0
        await joined.aclose()
    assert front.worker.running == 1
    await front.registry.close()


async def test_who_only_says_that_it_joins_pays_as_everybody():
    front = Front(STARTED, END, seats=1)
    with front.admission.enter(CALLER, 100, joins=True) as entry:
        bind_entry(entry)
        await all_of(front.stream())
        assert front.requests_taken == pytest.approx(1, abs=0.1)
    with front.admission.enter(CALLER, 1), front.admission.enter(CALLER, 1, joins=True) as entry:
        bind_entry(entry)
        with pytest.raises(OverloadedError):
            await all_of(front.stream(generation_id="other"))
    limited = Caller("o", Limits(requests_per_minute=1), "poor")
    with front.admission.enter(limited, 1):
        pass
    with front.admission.enter(limited, 1, joins=True) as entry, pytest.raises(RateLimitedError):
        entry.seat()


async def test_a_join_gives_back_the_seat_that_its_call_came_with():
    front = Front(*ENDLESS)
    first = front.stream()
    await some(first, 1)
    with front.admission.enter(CALLER, 100) as entry:
        bind_entry(entry)
        assert front.admission.seat_count == 2
        joined = front.stream()
        await some(joined, 1)
        assert front.admission.seat_count == 1
        await joined.aclose()
    await front.registry.close()


async def test_another_request_is_a_conflict_and_another_owner_s_is_not():
    front = Front(STARTED, WorkerTokens(0, [7]), END)
    await all_of(front.stream())
    with pytest.raises(GenerationConflictError):
        await all_of(front.stream(Retention(b"other", KEEP_S, KEEP_S)))
    other = await all_of(front.stream(Retention(b"other", 1, 1), caller=Caller("p")))
    assert isinstance(other[-1].event, Finished)
    assert front.tokenizer.renders == 2


async def test_a_replay_renders_and_generates_nothing():
    front = Front(STARTED, WorkerTokens(0, [7]), WorkerTokens(0, [8]), END)
    first = await all_of(front.stream())
    again = await all_of(front.stream())
    assert text_of(first) == text_of(again) == "7 8 "
    assert again[-1] == first[-1]
    assert front.tokenizer.renders == 1


async def test_resume_tells_the_state_first_then_the_rest():
    front = Front(STARTED, WorkerTokens(0, [7]), 0.05, WorkerTokens(0, [8]), END)
    stream = front.stream()
    before = await some(stream, 3)
    await stream.aclose()
    state, *rest = await all_of(front.registry.resume("o", "g", before[-1].sequence))
    assert state == Numbered(3, Heartbeat(State.DECODING))
    assert text_of(rest) == "8 "
    [ended] = await all_of(front.registry.resume("o", "g", rest[-1].sequence))
    assert ended.event == Heartbeat(State.ENDED)


async def test_nobody_can_resume_what_is_not_his_or_not_kept():
    front = Front(STARTED, END)
    await all_of(front.stream())
    await all_of(front.stream(None, generation_id="ordinary"))
    for owner, name in (("p", "g"), ("o", "ordinary"), ("o", "never")):
        with pytest.raises(GenerationNotFoundError):
            await all_of(front.registry.resume(owner, name, 0))
    with pytest.raises(InvalidArgumentError):
        await all_of(front.registry.resume("o", "g", 99))
    front.timers.advance(KEEP_S)
    with pytest.raises(GenerationExpiredError):
        await all_of(front.registry.resume("o", "g", 0))


async def test_after_its_window_the_same_request_begins_anew():
    front = Front(STARTED, WorkerTokens(0, [7]), END)
    await all_of(front.stream())
    await front.settle()
    front.timers.advance(KEEP_S)
    await all_of(front.stream())
    assert front.tokenizer.renders == 2


async def test_nobody_comes_back_and_all_is_freed():
    front = Front(*ENDLESS)
    stream = front.stream()
    await some(stream, 3)
    await stream.aclose()
    front.timers.advance(KEEP_S)
    await front.settle()
    assert (front.admission.seat_count, front.worker.running) == (0, 0)
    events = await all_of(front.registry.resume("o", "g", 3))
    assert events[-1].event.choices[0].reason is Finish.CANCELLED


async def test_who_was_cut_off_at_once_gets_an_answer_of_its_own():
    front = Front(*ENDLESS)
    policy = replace(KEEP, keep_s=0)
    stream = front.stream(policy)
    await some(stream, 3)
    await stream.aclose()
    assert (front.admission.seat_count, front.worker.running) == (0, 0)
    front.worker.steps = [STARTED, WorkerTokens(0, [9]), END]
    assert text_of(await all_of(front.stream(policy))) == "9 "


async def test_a_retry_waits_for_what_is_being_cancelled():
    front = Front(*ENDLESS)
    policy = replace(KEEP, keep_s=0)
    stream = front.stream(policy)
    await some(stream, 3)
    going = asyncio.ensure_future(stream.aclose())
    await asyncio.sleep(0)
    assert not going.done()
    front.worker.steps = [STARTED, WorkerTokens(0, [9]), END]
    assert text_of(await all_of(front.stream(policy))) == "9 "
    await going


@pytest.mark.parametrize(
    ("error", "renders"),
    [(EngineDeadError("gone"), 2), (InvalidArgumentError("x", 1, "2"), 1)],
    ids=["may be retried", "may not"],
)
async def test_a_failure_is_tried_again_only_where_that_may_help(error, renders):
    front = Front(STARTED, WorkerTokens(0, [7]), error)
    for _ in range(2):
        assert isinstance((await all_of(front.stream()))[-1].event, Failed)
    assert front.tokenizer.renders == renders


async def test_what_was_refused_before_it_was_accepted_is_not_kept():
    front = Front(STARTED, END)
    front.tokenizer.render_error = OverloadedError("full")
    [failed] = await all_of(front.stream())
    assert failed.event.error.reason is Reason.OVERLOADED
    await front.settle()
    front.tokenizer.render_error = None
    assert isinstance((await all_of(front.stream()))[-1].event, Finished)


async def test_a_shutdown_tells_every_reader_and_ends_what_nobody_reads():
    front = Front(*ENDLESS)
    left, read = front.stream(), front.stream(generation_id="read")
    await some(left, 3)
    await left.aclose()
    await some(read, 3)
    front.registry.fail_all()
    assert isinstance((await all_of(read))[-1].event, Failed)
    await front.settle()
    assert front.registry.running_count == 0
    with pytest.raises(UnavailableError):
        await all_of(front.stream(generation_id="new"))
    await front.registry.close()
    assert front.timers.waiting == 0


@pytest.mark.parametrize("retention", [None, KEEP], ids=["ordinary", "kept"])
async def test_what_nobody_reads_ends_the_generation(retention):
    tokens = [WorkerTokens(0, list(range(1000, 1100))) for _ in range(100)]
    front = Front(STARTED, *tokens, 60.0, END, limits=RetentionLimits(max_unread_bytes=4096))
    stream = front.stream(retention)
    await some(stream, 1)
    async with asyncio.timeout(10):
        while front.admission.seat_count:
            await asyncio.sleep(0.01)
    assert front.worker.running == 0
    end = (await all_of(stream))[-1].event
    assert "4096" in end.error.message


async def test_heartbeats_come_in_silence_and_are_not_numbered():
    front = Front(STARTED, WorkerTokens(0, [7]), 0.2, WorkerTokens(0, [8]), END)
    front.registry = Registry(
        ScriptedPlacement([front.tokenizer], [front.worker]),
        front.admission,
        asyncio.get_running_loop().time,
        1.0,
    )
    for retention in (None, KEEP):
        events = await all_of(front.registry.stream(front.request(), retention, 0.05))
        beats = [n for n in events if isinstance(n.event, Heartbeat)]
        assert beats
        assert {n.event.state for n in beats} == {State.DECODING}
        numbers = [n.sequence for n in events if not isinstance(n.event, Heartbeat)]
        assert numbers == sorted(set(numbers))
        assert text_of(events) == "7 8 "
