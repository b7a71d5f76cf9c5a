"""A replay has everything that a reader can ask for after any number that one was given, and no more than its bound."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.events import (
    Accepted,
    ChoiceEnd,
    Event,
    Finish,
    Finished,
    Numbered,
    Reasoning,
    Started,
    State,
    Text,
    Timings,
    ToolCall,
    Usage,
)
from services.gateway.logprob_wire import packed
from services.gateway.mailbox import MERGED_CHARACTERS
from services.gateway.replay import Replay, ReplayLimits
from services.runtime.errors import (
    CancelledByPeerError,
    GenerationExpiredError,
    InvalidArgumentError,
)

ACCEPTED = Accepted("g", "m", 3, 0)
END = Finished([ChoiceEnd(0, Finish.STOP)], Usage(), Timings())


def texts(events: list[Numbered]) -> dict[tuple[str, int], str]:
    """All text by kind and choice; of calls, id and arguments."""
    found: dict[tuple[str, int], str] = {}
    for numbered in events:
        event = numbered.event
        match event:
            case Text(index, text) | Reasoning(index, text):
                key = (type(event).__name__, index)
                found[key] = found.get(key, "") + text
            case ToolCall(index, call):
                key = (f"call {call}", index)
                found[key] = found.get(key, "") + event.id + event.arguments
    return found


def added(*parts: dict[tuple[str, int], str]) -> dict[tuple[str, int], str]:
    whole: dict[tuple[str, int], str] = {}
    for part in parts:
        for key, text in part.items():
            whole[key] = whole.get(key, "") + text
    return whole


@st.composite
def pieces(draw: st.DrawFn) -> Event:
    index, text = draw(st.integers(0, 1)), draw(st.text(min_size=1, max_size=4))
    kind = draw(st.sampled_from(["text", "text", "text", "reasoning", "call"]))
    if kind == "text":
        return Text(index, text)
    if kind == "reasoning":
        return Reasoning(index, text)
    return ToolCall(index, draw(st.integers(0, 1)), arguments=text)


@given(st.lists(pieces(), max_size=60), st.data())
def test_after_every_number_that_a_reader_had_comes_exactly_the_rest(events, data):
    async def play() -> None:
        replay = Replay()
        readers = [replay.reader(0) for _ in range(2)]
        had: list[list[Numbered]] = [[], []]
        for event in (ACCEPTED, Started("w", 0), *events, END):
            replay.put(event)
            for reader, seen in zip(readers, had, strict=True):
                if data.draw(st.booleans()):
                    seen += await reader.take()
        for reader, seen in zip(readers, had, strict=True):
            seen += await reader.take()
            assert reader.at_end
        whole = texts([Numbered(0, event) for event in events])
        for seen in had:
            assert texts(seen) == whole
            numbers = [numbered.sequence for numbered in seen]
            assert numbers == sorted(set(numbers))
            for place, number in enumerate(numbers):
                rest = replay.after(number)
                assert added(texts(seen[: place + 1]), texts(rest)) == whole
                if number < replay.sequence:
                    assert rest[-1].event == END

    asyncio.run(play())


async def test_what_nobody_has_taken_is_one_event_and_what_was_taken_can_be_cut_again():
    replay = Replay()
    reader = replay.reader(0)
    for piece in "abc":
        replay.put(Text(0, piece))
    assert await reader.take() == [Numbered(3, Text(0, "abc"))]
    replay.put(Text(0, "d"))
    assert await reader.take() == [Numbered(4, Text(0, "d"))]
    assert replay.after(3) == [Numbered(4, Text(0, "d"))]
    assert replay.after(0) == [Numbered(4, Text(0, "abcd"))]
    with pytest.raises(InvalidArgumentError, match="after_sequence"):
        replay.reader(2)


async def test_log_probabilities_are_cut_with_their_text():
    from hotline.v1 import generation_pb2

    def place(token_id: int):
        sampled = generation_pb2.TokenLogprob(token_id=token_id, logprob=-1.0)
        return packed([generation_pb2.PositionLogprobs(sampled=sampled)])

    replay = Replay()
    reader = replay.reader(0)
    for token_id in range(3):
        replay.put(Text(0, "x", place(token_id)))
        await reader.take()
    [rest] = replay.after(1)
    assert [one.sampled.token_id for one in rest.event.logprobs] == [1, 2]


async def test_a_call_has_its_name_only_for_who_does_not_have_it():
    replay = Replay()
    reader = replay.reader(0)
    replay.put(ToolCall(0, 0, "id", "tap", "{"))
    await reader.take()
    replay.put(ToolCall(0, 0, arguments="}"))
    assert replay.after(0) == [Numbered(2, ToolCall(0, 0, "id", "tap", "{}"))]
    assert replay.after(1) == [Numbered(2, ToolCall(0, 0, arguments="}"))]


async def test_the_oldest_goes_and_who_wants_it_hears_that_it_expired():
    replay = Replay(ReplayLimits(max_replay_bytes=100_000))
    reader, slow = replay.reader(0), replay.reader(0)
    piece = "x" * 1000
    numbers = []
    for _ in range(400):
        replay.put(Text(0, piece))
        numbers.append((await reader.take())[-1].sequence)
        assert replay.size_bytes < 100_000 + MERGED_CHARACTERS + 2000
    with pytest.raises(GenerationExpiredError):
        replay.check(0)
    with pytest.raises(GenerationExpiredError):
        await slow.take()
    kept = [number for number in numbers if _is_kept(replay, number)]
    assert 50 < len(kept) < 110
    for number in kept:
        text = "".join(numbered.event.text for numbered in replay.after(number))
        assert len(text) == (400 - number) * 1000


def _is_kept(replay: Replay, number: int) -> bool:
    try:
        replay.check(number)
    except GenerationExpiredError:
        return False
    return True


async def test_a_token_that_was_delivered_takes_little_more_than_its_text():
    replay = Replay(ReplayLimits(max_replay_bytes=10**9))
    reader = replay.reader(0)
    for _ in range(10_000):
        replay.put(Text(0, "word "))
        await reader.take()
    assert replay.size_bytes < 10_000 * (5 + 16) + 10 * 512


async def test_what_nobody_reads_is_bounded_and_told_once():
    calls: list[int] = []
    replay = Replay(ReplayLimits(max_unread_bytes=2000), overflow=lambda: calls.append(1))
    reader = replay.reader(0)
    for _ in range(10):
        replay.put(Text(0, "x" * 500))
        await reader.take()
    assert calls == []
    for _ in range(10):
        replay.put(Text(0, "x" * 500))
    assert calls == [1]


async def test_a_number_beyond_the_last_is_refused_and_the_last_is_the_end():
    replay = Replay()
    replay.put(ACCEPTED)
    replay.put(END)
    with pytest.raises(InvalidArgumentError):
        replay.reader(3)
    reader = replay.reader(2)
    assert reader.at_end
    assert await reader.take() == []


async def test_nothing_is_taken_after_the_terminal_event():
    replay = Replay()
    replay.put(END)
    replay.put(Text(0, "late"))
    assert replay.after(0) == [Numbered(1, END)]


async def test_every_waiting_reader_wakes_and_one_can_be_woken_for_nothing():
    replay = Replay()
    readers = [replay.reader(0) for _ in range(3)]
    waiting = [asyncio.ensure_future(reader.take()) for reader in readers]
    await asyncio.sleep(0)
    readers[0].wake()
    assert await waiting[0] == []
    replay.put(ACCEPTED)
    assert await asyncio.gather(*waiting[1:]) == [[Numbered(1, ACCEPTED)]] * 2


async def test_a_displaced_reader_hears_of_it():
    replay = Replay()
    reader = replay.reader(0)
    waiting = asyncio.ensure_future(reader.take())
    await asyncio.sleep(0)
    reader.displace()
    with pytest.raises(CancelledByPeerError):
        await waiting
    with pytest.raises(CancelledByPeerError):
        await reader.take()


async def test_the_state_follows_the_events():
    replay = Replay()
    states = [replay.state]
    for event in (ACCEPTED, Started("w", 0), Text(0, "x"), END):
        replay.put(event)
        states.append(replay.state)
    decoding = [State.PREFILL, State.PREFILL, State.DECODING, State.ENDED]
    assert states == [State.QUEUED, *decoding]


async def test_what_a_reader_has_is_known_also_of_what_was_dropped():
    replay = Replay(ReplayLimits(max_replay_bytes=1))
    reader = replay.reader(0)
    replay.put(ACCEPTED)
    for choice in (0, 1, 0):
        replay.put(Text(choice, "é" * 10))
        await reader.take()
    replay.put(Text(2, "new"))
    assert replay.before(4) == ([0, 1], {0: 20, 1: 10, 2: 0})
