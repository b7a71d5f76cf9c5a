"""A text whose detokeniser goes is the same text as if it had stayed: nothing lost, nothing twice."""

import asyncio
from pathlib import Path

import pytest
from hotline.v1 import generation_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from local_text import BROKEN, LocalDetokeniser, LocalDetokenisers, Reader

from services.gateway import pinned_text
from services.gateway.events import PositionLogprobs
from services.gateway.interfaces import TextOptions
from services.gateway.logprob_wire import packed
from services.gateway.pinned_text import PinnedText
from services.runtime.errors import InternalError, UnavailableError
from services.tokenizer.model import load_model
from services.tokenizer.settings import Role, TokenizerSettings

MODEL = Path(__file__).parents[3] / "deploy" / "models" / "autoglm-phone-tiny"
PLAIN = TextOptions(stop=(), split_reasoning=False, thinking_closed=False, ignore_eos=False)
SPLIT = TextOptions(
    stop=("不。", "END"), split_reasoning=True, thinking_closed=False, ignore_eos=False
)
FORM = load_model(
    TokenizerSettings(model_path=MODEL, model_name="tiny", roles=frozenset({Role.DETOKENISE}))
).output
LIMIT_S = 10.0
TIMEOUT_S = 5.0


def ids_of(text: str) -> list[int]:
    backend = FORM.detokeniser._backend
    ids = []
    for character in text:  # as many ids as may be: characters of several bytes are split
        ids += backend.encode(character, add_special_tokens=False).ids
    return ids


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def logprobs_of(ids: list[int]) -> tuple[PositionLogprobs, ...]:
    """Of two places with the same id only the log-probability differs."""
    return packed(
        generation_pb2.PositionLogprobs(
            sampled=generation_pb2.TokenLogprob(token_id=token_id, logprob=-place)
        )
        for place, token_id in enumerate(ids)
    )


def undisturbed(options: TextOptions, ids: list[int], last: bool) -> tuple[object, ...]:
    reader = Reader()
    one = LocalDetokeniser(FORM)
    stream = one.open_text(options, 0, reader)
    stream.send(ids, last, logprobs_of(ids))
    one.flush()
    return reader.whole


@pytest.fixture
def two():
    return LocalDetokenisers([LocalDetokeniser(FORM, "a"), LocalDetokeniser(FORM, "b")])


PIECES = st.sampled_from(
    [
        "<think>", "</think>", "\n", "<answer>", "</answer>", "不", "。", "E", "END", "EN", "🦜", "👩‍👩‍👧",
        "é", "a", " ", "你好", 'do(action="Tap", element=[5,7])', "<", "<th", "finish(message=", '"x")',
    ]
)  # fmt: skip


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    opening=st.sampled_from(["", "<think>", "<think>红色按钮 at the bottom🦜"]),
    pieces=st.lists(PIECES, max_size=14),
    options=st.sampled_from([PLAIN, SPLIT]),
    cuts=st.lists(st.integers(1, 7), min_size=1, max_size=6),
    acts=st.lists(st.sampled_from(["flush", "break", "break", "nothing"]), min_size=1, max_size=9),
)
async def test_any_text_cut_and_broken_anywhere_is_the_undisturbed_one(
    opening, pieces, options, cuts, acts
):
    ids = ids_of(opening + "".join(pieces))
    both = LocalDetokenisers([LocalDetokeniser(FORM, "a"), LocalDetokeniser(FORM, "b")])
    reader = Reader()
    pinned = PinnedText(both, options, 0, reader, TIMEOUT_S)
    position = step = 0
    while position < len(ids) and reader.end is None:
        end = position + cuts[step % len(cuts)]
        pinned.send(ids[position:end], False, logprobs_of(ids)[position:end])
        position, act = end, acts[step % len(acts)]
        step += 1
        for one in both.serving:
            if act == "flush":
                one.flush(limit=cuts[-1])
            elif act == "break":
                one.break_off()
        await turns(3)
    if reader.end is None:
        pinned.send((), last=True)
    for one in both.serving:
        one.break_off()  # once more with `last` sent already
    async with asyncio.timeout(LIMIT_S):
        while reader.end is None:
            for one in both.serving:
                one.flush(limit=cuts[-1])
            await asyncio.sleep(0)
    pinned.close()
    assert reader.whole == undisturbed(options, ids, last=True)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(pinned_text, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(pinned_text, "LAST_PAUSE_S", 0.002)


async def test_another_detokeniser_takes_over_at_once_and_only_the_unknown_part_is_told(two):
    reader = Reader()
    pinned = PinnedText(two, PLAIN, 0, reader, TIMEOUT_S)
    a, b = two.serving
    ids = ids_of("hello 🦜 world")
    pinned.send(ids[:7], last=False)
    a.flush()
    told = reader.text
    assert told
    a.break_off()
    await turns()
    assert len(b.texts) == 1
    b.flush()
    assert reader.text == told
    pinned.send(ids[7:], last=True)
    b.flush()
    assert reader.text == "hello 🦜 world"
    assert reader.end is not None
    assert reader.end.consumed_tokens == len(ids)


async def test_ids_that_come_while_nobody_serves_are_kept_for_who_comes_back(two, monkeypatch):
    monkeypatch.setattr(pinned_text, "FIRST_PAUSE_S", 60.0)  # who comes back is not made to wait
    monkeypatch.setattr(pinned_text, "LAST_PAUSE_S", 60.0)
    reader = Reader()
    a, _ = two.serving
    two.set(a)
    pinned = PinnedText(two, PLAIN, 0, reader, TIMEOUT_S)
    pinned.send(ids_of("abc"), last=False)
    a.flush()
    two.serving = []
    a.break_off()
    for character in "defghi":
        pinned.send(ids_of(character), last=False)
        await turns()
    pinned.send((), last=True)
    two.set(a)
    async with asyncio.timeout(LIMIT_S):
        while not a.texts:
            await asyncio.sleep(0)
    a.flush()
    assert reader.text == "abcdefghi"
    assert reader.end is not None


async def test_a_lone_detokeniser_whose_stream_broke_but_still_serves_is_used_after_a_pause(two):
    reader = Reader()
    a, _ = two.serving
    two.set(a)
    pinned = PinnedText(two, PLAIN, 0, reader, TIMEOUT_S)
    a.break_off()
    await turns()
    assert a.texts == []  # not at once: it may be dying
    async with asyncio.timeout(LIMIT_S):
        while not a.texts:
            await asyncio.sleep(0.001)
    pinned.close()


async def test_nobody_back_in_time_is_unavailable_and_retryable(two):
    reader = Reader()
    a, _ = two.serving
    pinned = PinnedText(two, PLAIN, 0, reader, 0.05)
    pinned.send(ids_of("abc"), last=False)
    two.serving = []
    a.break_off()
    async with asyncio.timeout(LIMIT_S):
        while reader.error is None:
            await asyncio.sleep(0.005)
    assert isinstance(reader.error, UnavailableError)
    assert reader.error.row.retryable
    assert "0.05 s" in reader.error.message
    pinned.close()


async def test_streams_that_break_over_and_over_end_in_an_error_not_in_a_loop(two):
    reader = Reader()
    pinned = PinnedText(two, PLAIN, 0, reader, 0.1)
    opened = 0
    pinned.send(ids_of("abc"), last=False)
    async with asyncio.timeout(LIMIT_S):
        while reader.error is None:
            for one in two.serving:
                opened += len(one.texts)
                one.break_off()
            await asyncio.sleep(0.001)
    assert isinstance(reader.error, UnavailableError)
    assert 2 < opened < 120
    pinned.close()


async def test_a_fault_of_the_text_itself_is_not_tried_elsewhere(two):
    reader = Reader()
    pinned = PinnedText(two, PLAIN, 0, reader, TIMEOUT_S)
    a, b = two.serving
    a.break_off(InternalError())
    await turns()
    assert isinstance(reader.error, InternalError)
    assert b.texts == []
    pinned.close()


async def test_no_detokeniser_at_the_beginning_is_an_error_at_once(two):
    two.serving = []
    with pytest.raises(UnavailableError):
        PinnedText(two, PLAIN, 0, Reader(), TIMEOUT_S)


async def test_a_closed_text_looks_for_nobody_and_hears_nothing(two):
    reader = Reader()
    pinned = PinnedText(two, PLAIN, 0, reader, TIMEOUT_S)
    a, b = two.serving
    pinned.send(ids_of("abc"), last=False)
    a.break_off()
    pinned.close()
    pinned.close()
    await turns()
    assert b.texts == []
    assert reader.text == ""
    assert reader.error is None


async def test_a_break_long_after_a_rebuild_has_all_its_time_again(two):
    reader = Reader()
    pinned = PinnedText(two, PLAIN, 0, reader, 0.2)
    a, b = two.serving
    a.break_off()
    await turns()
    assert len(b.texts) == 1  # rebuilt, and nothing to tell: no id has come
    await asyncio.sleep(0.25)
    two.serving = []
    b.break_off()
    await turns()
    assert reader.error is None
    two.set(a)
    async with asyncio.timeout(LIMIT_S):
        while not a.texts:
            await asyncio.sleep(0.001)
    pinned.send(ids_of("x"), last=True)
    a.flush()
    assert reader.text == "x"


async def test_an_unexpected_fault_in_a_rebuild_reaches_the_reader(two, monkeypatch):
    reader = Reader()
    pinned = PinnedText(two, PLAIN, 0, reader, TIMEOUT_S)
    a, b = two.serving

    def broken(*args: object) -> None:
        raise RuntimeError("a secret of ours")

    monkeypatch.setattr(b, "open_text", broken)
    a.break_off(BROKEN)
    await turns()
    assert isinstance(reader.error, InternalError)
    pinned.close()
