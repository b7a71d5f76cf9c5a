"""The mailbox merges only what waited, never loses, never repeats, and ends once."""

import asyncio

from hotline.v1 import generation_pb2
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.events import (
    ChoiceEnd,
    Event,
    Failed,
    Finish,
    Finished,
    Numbered,
    PositionLogprobs,
    Reasoning,
    Text,
    Timings,
    Usage,
)
from services.gateway.logprob_wire import packed
from services.gateway.mailbox import MERGED_CHARACTERS, MERGED_LOGPROBS, Mailbox
from services.runtime.errors import UnavailableError

END = Finished([ChoiceEnd(0, Finish.STOP)], Usage(), Timings())


async def test_a_quick_reader_gets_each_piece_by_itself():
    mailbox = Mailbox()
    mailbox.put(Text(0, "a"))
    assert await mailbox.take() == [Numbered(1, Text(0, "a"))]
    mailbox.put(Text(0, "b"))
    assert await mailbox.take() == [Numbered(2, Text(0, "b"))]


async def test_what_waited_is_merged_and_carries_the_last_number():
    mailbox = Mailbox()
    for piece in ("a", "b", "c"):
        mailbox.put(Text(0, piece))
    assert await mailbox.take() == [Numbered(3, Text(0, "abc"))]


def places(count: int, first: int = 0) -> tuple[PositionLogprobs, ...]:
    return packed(
        generation_pb2.PositionLogprobs(
            sampled=generation_pb2.TokenLogprob(token_id=token_id, logprob=-1.0)
        )
        for token_id in range(first, first + count)
    )


def ids(event: Event) -> list[int]:
    assert isinstance(event, Text)
    return [position.sampled.token_id for position in event.logprobs]


async def test_log_probabilities_are_merged_with_their_text():
    mailbox = Mailbox()
    mailbox.put(Text(0, "ab", places(2)))
    mailbox.put(Text(0, "-"))
    mailbox.put(Text(0, "c", places(1, first=2)))
    [merged] = await mailbox.take()
    assert isinstance(merged.event, Text)
    assert (merged.event.text, ids(merged.event)) == ("ab-c", [0, 1, 2])


async def test_no_event_grows_beyond_so_many_log_probabilities():
    mailbox, count = Mailbox(), 3 * MERGED_LOGPROBS
    for number in range(count):
        mailbox.put(Text(0, "a", places(1, first=number)))
    events = [numbered.event for numbered in await mailbox.take()]
    assert [len(ids(event)) for event in events] == [MERGED_LOGPROBS] * 3
    assert [number for event in events for number in ids(event)] == list(range(count))


async def test_what_waits_is_bounded_and_a_reader_that_comes_makes_room():
    calls: list[int] = []
    mailbox = Mailbox(max_unread_bytes=1000, overflow=lambda: calls.append(1))
    for _ in range(5):
        for _ in range(3):
            mailbox.put(Text(0, "x" * 300))
        await mailbox.take()
    assert calls == []
    for _ in range(5):
        mailbox.put(Text(0, "x" * 300))
    assert calls == [1]


async def test_an_end_that_the_bound_brings_is_the_last_event():
    failed = Failed(UnavailableError("slow"))
    mailbox = Mailbox(max_unread_bytes=1000, overflow=lambda: mailbox.put(failed))
    for _ in range(9):
        mailbox.put(Text(0, "x" * 300))
    events = await mailbox.take()
    assert events[-1].event == failed
    assert [n.sequence for n in events] == sorted({n.sequence for n in events})
    assert len("".join(n.event.text for n in events[:-1])) == events[-2].sequence * 300


async def test_no_event_grows_without_end():
    mailbox = Mailbox()
    for _ in range(10):
        mailbox.put(Text(0, "x" * 10_000))
    lengths = [len(n.event.text) for n in await mailbox.take()]
    assert sum(lengths) == 100_000
    assert max(lengths) <= MERGED_CHARACTERS + 10_000


async def test_a_reader_can_be_woken_for_nothing():
    mailbox = Mailbox()
    mailbox.wake()
    reader = asyncio.ensure_future(mailbox.take())
    await asyncio.sleep(0)
    mailbox.wake()
    assert await asyncio.wait_for(reader, 5) == []


async def test_pieces_of_different_kinds_or_choices_stay_apart():
    mailbox = Mailbox()
    events: list[Event] = [Reasoning(0, "t"), Text(0, "a"), Text(1, "b"), Text(0, "c")]
    for event in events:
        mailbox.put(event)
    assert [numbered.event for numbered in await mailbox.take()] == events


async def test_nothing_is_taken_after_the_terminal_event():
    mailbox = Mailbox()
    mailbox.put(END)
    mailbox.put(Text(0, "late"))
    mailbox.put(Failed(UnavailableError("late")))
    assert await mailbox.take() == [Numbered(1, END)]


async def test_a_waiting_reader_wakes_at_the_first_piece():
    mailbox = Mailbox()
    reader = asyncio.ensure_future(mailbox.take())
    await asyncio.sleep(0)
    assert not reader.done()
    mailbox.put(Text(0, "now"))
    assert await asyncio.wait_for(reader, 5) == [Numbered(1, Text(0, "now"))]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.text(min_size=1)), max_size=40),
    st.lists(st.booleans(), min_size=40, max_size=40),
)
def test_however_it_is_read_the_text_of_each_choice_is_whole_and_numbers_rise(pieces, reads):
    async def play() -> list[Numbered]:
        mailbox, seen = Mailbox(), []
        for (choice, thought, text), read in zip(pieces, reads, strict=False):
            mailbox.put(Reasoning(choice, text) if thought else Text(choice, text))
            if read:
                seen += await mailbox.take()
        mailbox.put(END)
        return seen + await mailbox.take()

    seen = asyncio.run(play())
    for choice in range(3):
        for kind, thought in ((Text, False), (Reasoning, True)):
            wanted = "".join(
                t for c, is_thought, t in pieces if c == choice and is_thought == thought
            )
            got = "".join(
                n.event.text
                for n in seen
                if isinstance(n.event, kind) and n.event.choice_index == choice
            )
            assert got == wanted
    numbers = [numbered.sequence for numbered in seen]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == len(pieces) + 1
