"""Sessions in memory: gone with the process."""

import asyncio
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import msgspec

from services.gateway.sessions.expiry import Expiry
from services.gateway.sessions.leased_turns import SoleLeases
from services.gateway.sessions.memory_media import MemoryMedia
from services.gateway.sessions.record import Session
from services.gateway.sessions.room import SessionRoom
from services.gateway.sessions.session_codec import decoded, encoded
from services.gateway.sessions.store import PageEnd
from services.gateway.sessions.turn_locks import TurnLocks

SWEEP_ENTRIES = 250
"""Looked at between two turns of the event loop: some 1 ms, and 5 ms where one owner has 100,000 of them."""
SWEEP_INTERVAL_S = 0.5
"""Between two sweeps. What has expired is not found in any case; until then it holds memory."""


class _Kept(msgspec.Struct, gc=False):
    """A session as one string of bytes, beside what is asked for without reading it.

    Nothing of it is the garbage collector's: with 100,000 sessions as objects each of its full runs held up the event loop
    for 200 ms.
    """

    owner: str
    create_time_s: float
    expire_time_s: float
    version: int
    record: bytes

    def session(self) -> Session | None:
        """The whole of it."""
        found = decoded(self.record)
        return None if found is None else replace(found, expire_time_s=self.expire_time_s)


class MemoryStore:
    """See store.SessionStore. All of it is on the event loop, and nothing waits but for a turn.

    Args:
        now: Unix seconds.
        max_media_bytes: of all images.
    """

    def __init__(self, now: Callable[[], float], room: SessionRoom, max_media_bytes: int) -> None:
        self._now, self._room = now, room
        self.media, self.leases = MemoryMedia(max_media_bytes), SoleLeases()
        self._sessions: dict[bytes, _Kept] = {}
        self._by_owner: dict[str, list[PageEnd]] = {}
        """Oldest first."""
        self._expiry: Expiry[bytes] = Expiry()
        self._locks = TurnLocks()
        self._sweeping: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Sessions that are held."""
        return len(self._sessions)

    async def start(self) -> None:
        """See SessionStore."""
        self._sweeping = asyncio.create_task(self._sweep(), name="session sweep")

    async def close(self) -> None:
        """See SessionStore."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait([self._sweeping])
            self._sweeping = None

    async def create(self, session: Session) -> None:
        """See SessionStore."""
        owned = self._by_owner.get(session.owner, ())
        self._room.check(len(self._sessions), len(owned))
        place = (session.create_time_s, session.session_id)
        insort(self._by_owner.setdefault(session.owner, []), place)
        self._keep(session, session.expire_time_s)

    async def load(self, owner: str, session_id: bytes) -> Session | None:
        """See SessionStore."""
        kept = self._live(owner, session_id)
        return None if kept is None else kept.session()

    async def replace(self, session: Session) -> bool:
        """See SessionStore."""
        kept = self._live(session.owner, session.session_id)
        if kept is None or kept.version != session.version - 1:
            return False
        self._keep(session, max(session.expire_time_s, kept.expire_time_s))
        return True

    async def touch(self, owner: str, session_id: bytes) -> float | None:
        """See SessionStore."""
        kept = self._live(owner, session_id)
        session = None if kept is None else kept.session()
        if kept is None or session is None:
            return None
        kept.expire_time_s = session.touched(self._now()).expire_time_s
        self._expiry.set(session_id, kept.expire_time_s)
        return kept.expire_time_s

    async def delete(self, owner: str, session_id: bytes) -> bool:
        """See SessionStore."""
        if self._live(owner, session_id) is None:
            return False
        self._expiry.forget(session_id)
        self._forget(session_id)
        return True

    async def page(self, owner: str, size: int, after: PageEnd | None) -> Sequence[Session]:
        """See SessionStore."""
        places = self._by_owner.get(owner, [])
        end = len(places) if after is None else bisect_left(places, after)
        page: list[Session] = []
        while end > 0 and len(page) < size:
            end -= 1
            kept = self._live(owner, places[end][1])
            session = None if kept is None else kept.session()
            if session is not None:
                page.append(session)
        return page

    def turn(self, session_id: bytes, wait_s: float) -> AbstractAsyncContextManager[None]:
        """See SessionStore."""
        return self._locks.hold(session_id, wait_s)

    def sweep_some(self) -> bool:
        """Forget some of what has expired; whether there may be more."""
        return self._expiry.due(self._now(), SWEEP_ENTRIES, self._forget)

    async def _sweep(self) -> None:
        while True:
            pause_s = 0.0 if self.sweep_some() else SWEEP_INTERVAL_S
            await asyncio.sleep(pause_s)

    def _live(self, owner: str, session_id: bytes) -> _Kept | None:
        kept = self._sessions.get(session_id)
        if kept is None or kept.owner != owner or kept.expire_time_s <= self._now():
            return None
        return kept

    def _keep(self, session: Session, end_s: float) -> None:
        self._sessions[session.session_id] = _Kept(
            session.owner, session.create_time_s, end_s, session.version, encoded(session)
        )
        self._expiry.set(session.session_id, end_s)

    def _forget(self, session_id: bytes) -> None:
        kept = self._sessions.pop(session_id)
        places = self._by_owner[kept.owner]
        del places[bisect_left(places, (kept.create_time_s, session_id))]
        if not places:
            del self._by_owner[kept.owner]
        self.media.drop_now(session_id)
