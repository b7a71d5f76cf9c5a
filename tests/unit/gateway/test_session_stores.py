"""Every place that keeps sessions: the same behaviour in memory, in SQLite and in a real Redis."""

import asyncio
import os
import secrets
import sqlite3
import time
from dataclasses import replace

import pytest
from redis_process import has_redis, redis_binary, running_redis

from services.gateway.sessions.memory_store import MemoryStore
from services.gateway.sessions.record import CacheScope, Session, StoredMessage, Turn
from services.gateway.sessions.redis_store import RedisStore
from services.gateway.sessions.room import SessionRoom
from services.gateway.sessions.sqlite_database import DatabaseError
from services.gateway.sessions.sqlite_store import SqliteStore
from services.runtime.errors import OverloadedError, SessionBusyError, UnavailableError

ROOM = SessionRoom(max_sessions=40, max_per_owner=30)
MEDIA_BYTES = 1000


class Clock:
    """Unix seconds, from now on; can be moved."""

    def __init__(self):
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(scope="module")
async def redis_url(tmp_path_factory):
    if has_redis():
        async with running_redis(tmp_path_factory.mktemp("redis")) as (url, _):
            yield url
    else:
        yield None


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def store(request, tmp_path, clock, redis_url):
    if request.param == "memory":
        made = MemoryStore(clock, ROOM, MEDIA_BYTES)
    elif request.param == "sqlite":
        made = SqliteStore(tmp_path / "s" / "sessions.db", clock, ROOM, MEDIA_BYTES)
    else:
        redis_binary()
        made = RedisStore(redis_url, secrets.token_hex(4), clock, ROOM, MEDIA_BYTES)
    await made.start()
    yield made
    await made.close()


def session(clock, owner="anna", ttl_s=100.0, age_s=0.0, **fields) -> Session:
    begun_s = round(clock() - age_s, 3)
    return Session(
        secrets.token_bytes(16), owner, "model", begun_s, begun_s + ttl_s, ttl_s, 10_000.0, **fields
    )


FULL = {
    "cache_scope": CacheScope.SESSION,
    "salt": "session.x",
    "preamble": (StoredMessage(b"p", (), True),),
    "turns": (
        Turn(
            (StoredMessage(b"m", (b"d" * 32,)),),
            b"\1\0\0\0",
            (b"f",),
            (b"d" * 32,),
            2,
            b"",
            "",
            "x",
            False,
        ),
    ),
    "turn_count": 1,
    "media": frozenset({b"d" * 32}),
}


async def test_what_is_kept_comes_back_as_it_was(store, clock):
    kept = session(clock, **FULL)
    await store.create(kept)
    found = await store.load("anna", kept.session_id)
    assert replace(found, expire_time_s=0) == replace(kept, expire_time_s=0)
    assert found.expire_time_s == pytest.approx(kept.expire_time_s, abs=0.001)


async def test_absent_foreign_and_expired_ones_are_all_the_same(store, clock):
    kept = session(clock)
    await store.create(kept)
    assert await store.load("anna", b"\0" * 16) is None
    assert await store.load("ann", kept.session_id) is None
    for act in (store.load, store.touch, store.delete):
        assert not await act("bert", kept.session_id)
    assert not await store.replace(replace(kept, owner="bert", version=1))
    clock.ahead_s = 100.5
    for act in (store.load, store.touch, store.delete):
        assert not await act("anna", kept.session_id)
    assert not await store.replace(replace(kept, version=1))
    assert list(await store.page("anna", 10, None)) == []


async def test_a_change_counts_once_and_only_from_the_newest_record(store, clock):
    kept = session(clock)
    await store.create(kept)
    assert await store.replace(replace(kept, version=1, worker="a"))
    assert not await store.replace(replace(kept, version=1, worker="b"))
    assert not await store.replace(replace(kept, version=3, worker="c"))
    found = await store.load("anna", kept.session_id)
    assert (found.version, found.worker) == (1, "a")


async def test_of_many_changes_at_once_one_wins(store, clock):
    kept = session(clock)
    await store.create(kept)
    changed = [replace(kept, version=1, worker=f"{n}") for n in range(20)]
    won = await asyncio.gather(*map(store.replace, changed))
    assert sum(won) == 1


async def test_a_touch_begins_the_idle_time_anew_up_to_the_absolute_end(store, clock):
    kept = replace(session(clock), absolute_ttl_s=150.0)
    await store.create(kept)
    clock.ahead_s = 40
    assert await store.touch("anna", kept.session_id) == pytest.approx(clock() + 100, abs=1)
    clock.ahead_s = 120
    assert await store.touch("anna", kept.session_id) == pytest.approx(
        kept.create_time_s + 150, abs=0.01
    )
    clock.ahead_s = 149
    assert await store.load("anna", kept.session_id) is not None
    clock.ahead_s = 151
    assert await store.load("anna", kept.session_id) is None


async def test_a_touch_that_reaches_further_outlives_a_change(store, clock):
    kept = session(clock)
    await store.create(kept)
    clock.ahead_s = 50
    touched = await store.touch("anna", kept.session_id)
    assert await store.replace(replace(kept, version=1))
    found = await store.load("anna", kept.session_id)
    assert found.expire_time_s == pytest.approx(touched, abs=0.01)


async def test_pages_go_from_the_newest_to_the_oldest_without_gap_or_repeat(store, clock):
    mine = [session(clock, age_s=age) for age in (5, 4, 4, 3, 2, 2, 1)]
    for each in (*mine, session(clock, "bert")):
        await store.create(each)
    wanted = sorted(((s.create_time_s, s.session_id) for s in mine), reverse=True)
    found, after = [], None
    while page := await store.page("anna", 3, after):
        found += [(s.create_time_s, s.session_id) for s in page]
        after = found[-1]
    assert found == wanted


async def test_a_deleted_session_takes_its_images_with_it(store, clock):
    kept = session(clock)
    await store.create(kept)
    await store.media.put(kept.session_id, b"d" * 32, b"picture")
    assert await store.media.get(kept.session_id, b"d" * 32) == b"picture"
    assert await store.media.get(b"\0" * 16, b"d" * 32) is None
    assert await store.delete("anna", kept.session_id)
    assert not await store.delete("anna", kept.session_id)
    assert await store.media.get(kept.session_id, b"d" * 32) is None


async def test_images_are_bounded_in_bytes(store, clock):
    kept = session(clock)
    await store.create(kept)
    await store.media.put(kept.session_id, b"0" * 32, b"x" * (MEDIA_BYTES + 1))
    assert await store.media.get(kept.session_id, b"0" * 32) is None
    for number in range(5):
        await store.media.put(kept.session_id, bytes([number]) * 32, b"x" * 400)
    found = [await store.media.get(kept.session_id, bytes([n]) * 32) for n in range(5)]
    assert sum(len(data) for data in found if data) <= MEDIA_BYTES
    assert any(found)


async def test_one_owner_and_all_of_them_have_so_many_and_no_more(store, clock):
    for _ in range(ROOM.max_per_owner):
        await store.create(session(clock))
    with pytest.raises(OverloadedError, match="30"):
        await store.create(session(clock))
    for _ in range(ROOM.max_sessions - ROOM.max_per_owner):
        await store.create(session(clock, "bert"))
    with pytest.raises(OverloadedError, match="40"):
        await store.create(session(clock, "carl"))


async def test_one_turn_of_a_session_at_a_time_and_those_that_wait_come_in_order(store):
    order = []

    async def turn(number: int) -> None:
        async with store.turn(b"s" * 16, 5.0):
            order.append(number)
            await asyncio.sleep(0.01)

    async with store.turn(b"s" * 16, 0):
        waiting = []
        for number in range(4):
            waiting.append(asyncio.create_task(turn(number)))
            await asyncio.sleep(0)
        with pytest.raises(SessionBusyError):
            async with store.turn(b"s" * 16, 0):
                pass
        async with store.turn(b"t" * 16, 0):  # another session
            pass
    await asyncio.gather(*waiting)
    assert order == [0, 1, 2, 3]
    async with store.turn(b"s" * 16, 0):
        pass


async def test_a_turn_that_waits_too_long_or_is_cancelled_leaves_the_line(store):
    async with store.turn(b"s" * 16, 0):
        with pytest.raises(SessionBusyError):
            async with store.turn(b"s" * 16, 0.05):
                pass
        waiting = asyncio.create_task(store.turn(b"s" * 16, 5.0).__aenter__())
        await asyncio.sleep(0.02)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    async with store.turn(b"s" * 16, 0):
        pass


@pytest.fixture(params=["sqlite", "redis"])
async def two(request, tmp_path, clock, redis_url):
    """Two gateways' stores over one file or server."""
    prefix = secrets.token_hex(4)
    made = []
    for _ in range(2):
        if request.param == "sqlite":
            made.append(SqliteStore(tmp_path / "sessions.db", clock, ROOM, MEDIA_BYTES))
        else:
            redis_binary()
            made.append(RedisStore(redis_url, prefix, clock, ROOM, MEDIA_BYTES))
        await made[-1].start()
    yield made
    for store in made:
        await store.close()


async def test_gateways_that_share_a_store_see_each_others_sessions_images_and_turns(two, clock):
    one, other = two
    kept = session(clock)
    await one.create(kept)
    await one.media.put(kept.session_id, b"d" * 32, b"picture")
    assert (await other.load("anna", kept.session_id)).session_id == kept.session_id
    assert await other.media.get(kept.session_id, b"d" * 32) == b"picture"
    async with one.turn(kept.session_id, 0):
        with pytest.raises(SessionBusyError):
            async with other.turn(kept.session_id, 0):
                pass
    async with other.turn(kept.session_id, 0):
        pass


async def test_a_lease_is_free_again_when_its_holder_is_gone(two):
    one, other = two
    assert await one.leases.claim(b"k", "one", 0.2) == "one"
    assert await other.leases.claim(b"k", "other", 0.2) == "one"
    assert await other.leases.holder(b"k") == "one"
    await other.leases.release(b"k", "other")  # not its own
    assert await other.leases.holder(b"k") == "one"
    await asyncio.sleep(0.25)
    assert await other.leases.holder(b"k") == ""
    assert await other.leases.claim(b"k", "other", 5) == "other"
    assert await one.leases.claim(b"k", "one", 5) == "other"
    await other.leases.release(b"k", "other")
    assert await one.leases.claim(b"k", "one", 5) == "one"


async def test_expired_sessions_go_from_the_file_with_their_images(tmp_path, clock):
    store = SqliteStore(tmp_path / "sessions.db", clock, ROOM, MEDIA_BYTES)
    await store.start()
    kept, expiring = session(clock, ttl_s=1000), session(clock)
    for each in (kept, expiring):
        await store.create(each)
        await store.media.put(each.session_id, b"d" * 32, b"picture")
    clock.ahead_s = 500
    assert await store.sweep() == 1
    folders = [path.name for path in (tmp_path / "sessions.media").iterdir()]
    assert folders == [kept.session_id.hex()]
    await store.close()


async def test_files_are_for_their_owner_alone(tmp_path, clock):
    store = SqliteStore(tmp_path / "s" / "sessions.db", clock, ROOM, MEDIA_BYTES)
    await store.start()
    await store.media.put(b"s" * 16, b"d" * 32, b"picture")
    for path in (tmp_path / "s").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    await store.close()


@pytest.mark.parametrize("kind", ["no database", "symlink", "folder", "another version"])
async def test_a_file_that_cannot_be_used_is_refused_by_its_name(tmp_path, clock, kind):
    path = tmp_path / "sessions.db"
    if kind == "no database":
        path.write_bytes(b"no database at all " * 100)
    elif kind == "symlink":
        (tmp_path / "other").touch()
        path.symlink_to(tmp_path / "other")
    elif kind == "folder":
        path.mkdir()
    else:
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA user_version=7")
        connection.close()
    with pytest.raises(DatabaseError, match=r"sessions\.db"):
        await SqliteStore(path, clock, ROOM, MEDIA_BYTES).start()


async def test_a_server_that_is_away_is_unavailable_and_back_when_it_is(tmp_path, clock):
    store = RedisStore(f"unix://{tmp_path}/redis.sock", "p", clock, ROOM, MEDIA_BYTES)
    await store.start()
    with pytest.raises(UnavailableError):
        await store.load("anna", b"s" * 16)
    async with running_redis(tmp_path):
        assert await store.load("anna", b"s" * 16) is None
    with pytest.raises(UnavailableError):
        await store.load("anna", b"s" * 16)
    await store.close()


async def test_gateways_that_start_together_all_open_the_file(tmp_path, clock):
    for number in range(10):
        path = tmp_path / f"{number}.db"
        stores = [SqliteStore(path, clock, ROOM, MEDIA_BYTES) for _ in range(4)]
        await asyncio.gather(*(store.start() for store in stores))
        for store in stores:
            await store.close()


async def test_images_without_a_session_go_with_the_next_sweep_and_at_the_next_start(
    tmp_path, clock
):
    store = SqliteStore(tmp_path / "sessions.db", clock, ROOM, MEDIA_BYTES)
    await store.start()
    await store.media.put(b"s" * 16, b"d" * 32, b"picture")
    clock.ahead_s = 100
    await store.sweep()
    folder = tmp_path / "sessions.media"
    assert list(folder.iterdir()) == []
    await store.close()
    stray = folder / "00"
    stray.mkdir()
    os.utime(stray, (0, 0))
    again = SqliteStore(tmp_path / "sessions.db", clock, ROOM, MEDIA_BYTES)
    await again.start()
    assert list(folder.iterdir()) == []
    await again.close()


async def test_one_change_that_cannot_be_done_costs_the_others_of_its_commit_nothing(
    tmp_path, clock
):
    store = SqliteStore(tmp_path / "sessions.db", clock, ROOM, MEDIA_BYTES)
    await store.start()
    twice = session(clock)
    made = [twice, session(clock), twice, session(clock)]
    results = await asyncio.gather(*map(store.create, made), return_exceptions=True)
    assert [isinstance(result, UnavailableError) for result in results] == [
        False,
        False,
        True,
        False,
    ]
    assert len(await store.page("anna", 10, None)) == 3
    await store.close()
