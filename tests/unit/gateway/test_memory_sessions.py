"""100,000 sessions in memory: what they take, and that nothing which expires holds up the event loop."""

import asyncio
import gc
import secrets
import time
import tracemalloc
from dataclasses import replace

import pytest

from services.gateway.sessions.memory_store import SWEEP_INTERVAL_S, MemoryStore
from services.gateway.sessions.record import Session, StoredMessage, Turn
from services.gateway.sessions.room import SessionRoom

COUNT = 100_000
IDS = b"\1\0\0\0" * 500


class Clock:
    now_s = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(clock):
    return MemoryStore(clock, SessionRoom(COUNT, COUNT), 1000)


def session(clock, owner="anna", ttl_s=100.0) -> Session:
    now_s = clock()
    return Session(secrets.token_bytes(16), owner, "model", now_s, now_s + ttl_s, ttl_s, 1000.0)


def with_turns(empty: Session, number: int) -> Session:
    """Two turns with a screenshot each."""
    system = StoredMessage(b"You are a phone agent, number %d." % number, (), True)
    turns = []
    for place in range(2):
        digest = secrets.token_bytes(32)
        message = StoredMessage(b"%d: tap the second entry. " % number * 4 + digest, (digest,))
        shown = ((b"feature" * 10 + digest,), (digest,)) if place else ((), ())
        turns.append(Turn((message,), IDS, *shown, 2, IDS, "", "", False))
    media = frozenset(turn.messages[0].media[0] for turn in turns)
    return replace(empty, preamble=(system,), turns=tuple(turns), turn_count=2, media=media)


async def swept(store: MemoryStore) -> float:
    """Seconds that the slowest batch took, on this thread."""
    worst_s, there_are_more = 0.0, True
    while there_are_more:
        begun_s = time.thread_time()
        there_are_more = store.sweep_some()
        worst_s = max(worst_s, time.thread_time() - begun_s)
    return worst_s


@pytest.mark.parametrize("owners", [1, 1000])
async def test_of_100_000_that_expire_at_once_no_batch_takes_20_ms(store, clock, owners):
    for number in range(COUNT):
        await store.create(session(clock, f"owner {number % owners}"))
    clock.now_s += 200
    gc.collect()
    assert await swept(store) < 0.02
    assert not len(store)


async def test_a_session_with_turns_takes_less_than_4_kb_beside_its_ids(store, clock):
    count = COUNT // 5
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(count):
            await store.create(with_turns(session(clock), number))
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(store) == count
    ids_bytes = 4 * len(IDS)  # of prompt and answer, in two turns
    assert held_bytes / count - ids_bytes < 4096


async def test_sessions_are_nothing_to_the_garbage_collector(store, clock):
    gc.collect()
    before = len(gc.get_objects())
    for number in range(5_000):
        await store.create(with_turns(session(clock), number))
    gc.collect()
    assert len(gc.get_objects()) - before < 500


async def test_what_expired_is_not_found_from_its_moment_on_and_is_gone_within_a_second(
    store, clock
):
    begun_s = clock.now_s
    for number in range(128):
        clock.now_s = begun_s + number / 128
        last = session(clock, ttl_s=10.0)
        await store.create(last)
    end_s = last.expire_time_s
    clock.now_s = end_s - 1 / 1024
    await swept(store)
    assert await store.load("anna", last.session_id) is not None
    clock.now_s = end_s
    assert await store.load("anna", last.session_id) is None
    clock.now_s = end_s + 1 - SWEEP_INTERVAL_S
    await swept(store)
    assert not len(store)


async def test_sessions_that_live_are_touched_and_outlive_those_that_are_not(store, clock):
    touched, left = session(clock), session(clock)
    for each in (touched, left):
        await store.create(each)
    for _ in range(5):
        clock.now_s += 60
        await store.touch("anna", touched.session_id)
        await swept(store)
    assert len(store) == 1
    assert await store.load("anna", touched.session_id) is not None


async def test_the_sweep_runs_by_itself_from_the_start_and_takes_images_along(store, clock):
    each = session(clock)
    await store.create(each)
    await store.media.put(each.session_id, b"d" * 32, b"picture")
    clock.now_s += 200
    await store.start()
    async with asyncio.timeout(5):
        while len(store):
            await asyncio.sleep(0.01)
    assert store.media.held_bytes == 0
    await store.close()
    await store.close()
