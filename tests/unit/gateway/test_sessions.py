"""What owners can do with sessions: bounds of their lives, ids, and salts that Clear makes new."""

import math
from dataclasses import replace

import pytest

from services.gateway.cache_salt import owner_salt
from services.gateway.sessions.memory_store import MemoryStore
from services.gateway.sessions.record import CacheScope, StoredMessage
from services.gateway.sessions.room import SessionRoom
from services.gateway.sessions.sessions import CHANGE_ATTEMPTS, Sessions, Wanted, parsed
from services.gateway.sessions.settings import SessionSettings
from services.runtime.errors import InvalidArgumentError, SessionBusyError, SessionNotFoundError

SETTINGS = SessionSettings(
    default_idle_ttl_s=100, max_idle_ttl_s=200, default_absolute_ttl_s=150, max_absolute_ttl_s=400
)


class Clock:
    now_s = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def sessions(clock):
    return Sessions(MemoryStore(clock, SessionRoom(100, 100), 10_000), SETTINGS, clock)


async def kept(sessions, **fields):
    return await sessions.keep(sessions.begin("anna", "model", Wanted(**fields)))


@pytest.mark.parametrize(
    ("idle_s", "absolute_s", "lives_s"),
    [(None, None, 100), (200, None, 150), (50, 400, 50), (10, 10, 10), (200, 20, 20)],
)
async def test_it_lives_for_the_idle_ttl_and_never_beyond_the_absolute_one(
    sessions, clock, idle_s, absolute_s, lives_s
):
    session = await kept(sessions, idle_ttl_s=idle_s, absolute_ttl_s=absolute_s)
    name, begun_s = session.session_id.hex(), clock.now_s
    assert session.expire_time_s == begun_s + lives_s
    clock.now_s += lives_s - 1
    assert await sessions.get("anna", name) == session
    await sessions.touch("anna", name)
    clock.now_s = begun_s + session.absolute_ttl_s
    with pytest.raises(SessionNotFoundError):
        await sessions.get("anna", name)


@pytest.mark.parametrize("ttl_s", [9.999, 0, -1, 200.001, math.inf, -math.inf, math.nan])
async def test_a_ttl_out_of_bounds_is_refused_by_name_value_and_limits(sessions, ttl_s):
    with pytest.raises(InvalidArgumentError, match=r"idle_ttl: .*10 to 200 seconds"):
        sessions.begin("anna", "model", Wanted(idle_ttl_s=ttl_s))


async def test_ids_are_128_bits_and_never_the_same(sessions):
    ids = {sessions.begin("anna", "model", Wanted()).session_id for _ in range(1000)}
    assert len(ids) == 1000
    assert {len(each) for each in ids} == {16}


@pytest.mark.parametrize(
    "text", ["", "0" * 31, "0" * 33, "A" * 32, "0" * 31 + "\n", "\uff10" * 32, " " + "0" * 32]
)
def test_what_is_not_32_digits_in_lower_case_is_no_id(text):
    with pytest.raises(InvalidArgumentError, match="session_id"):
        parsed(text)
    assert parsed("0a" * 16) == b"\x0a" * 16


@pytest.mark.parametrize("scope", list(CacheScope))
async def test_each_clear_makes_a_salt_that_nothing_else_has(sessions, scope):
    session = await kept(sessions, cache_scope=scope)
    salts = [session.salt]
    assert bool(session.salt) is (scope is CacheScope.SESSION)
    for _ in range(3):
        salts.append((await sessions.clear("anna", session.session_id.hex(), False)).salt)
    assert len({*salts, owner_salt("anna"), ""} - {""}) == (5 if salts[0] else 4)
    assert all(len(salt) <= 64 for salt in salts)
    assert (await sessions.get("anna", session.session_id.hex())).salt == salts[-1]


async def test_a_change_from_before_a_clear_is_refused_and_one_from_after_it_counts(sessions):
    before = await kept(sessions)
    cleared = await sessions.clear("anna", before.session_id.hex(), False)
    changed = replace(before, turn_count=1, version=before.version + 1)
    assert not await sessions.store.replace(changed)
    assert await sessions.store.replace(replace(cleared, turn_count=1, version=cleared.version + 1))


async def test_clear_tries_again_where_a_turn_is_committed_just_then_but_not_for_ever(sessions):
    session = await kept(sessions)
    name, store = session.session_id.hex(), sessions.store
    really, commits = store.load, CHANGE_ATTEMPTS - 1

    async def load_and_commit(owner, session_id):
        nonlocal commits
        found = await really(owner, session_id)
        if commits:
            commits -= 1
            await store.replace(replace(found, version=found.version + 1, turn_count=7))
        return found

    store.load = load_and_commit
    assert (await sessions.clear("anna", name, False)).turn_count == 7
    commits = CHANGE_ATTEMPTS
    with pytest.raises(SessionBusyError):
        await sessions.clear("anna", name, False)


async def test_what_it_was_opened_with_counts_as_its_own_until_it_has_to_forget(sessions):
    digest = b"d" * 32
    begun = sessions.begin("anna", "model", Wanted())
    await sessions.store.media.put(begun.session_id, digest, b"picture")
    message = StoredMessage(b"m", (digest,))
    session = await sessions.furnish(await sessions.keep(begun), (message,))
    assert session.media == {digest}
    name = session.session_id.hex()
    assert (await sessions.clear("anna", name, False)).preamble == (message,)
    assert await sessions.store.media.get(session.session_id, digest) == b"picture"
    forgot = await sessions.clear("anna", name, True)
    assert (forgot.preamble, forgot.media) == ((), frozenset())
    assert await sessions.store.media.get(session.session_id, digest) is None


async def test_nobody_else_can_do_anything_with_it(sessions):
    name = (await kept(sessions)).session_id.hex()
    told = set()
    for owner, each in (("bert", name), ("anna", "0" * 32)):
        for act in (sessions.get, sessions.touch, lambda *a: sessions.clear(*a, True)):
            with pytest.raises(SessionNotFoundError) as raised:
                await act(owner, each)
            told.add(str(raised.value))
        assert not await sessions.delete(owner, each)
    assert len(told) == 1
    assert await sessions.get("anna", name)
