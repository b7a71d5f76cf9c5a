"""Sessions in a SQLite file: they survive the gateway, also kill -9."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from pathlib import Path

from services.gateway.sessions.leased_turns import LeasedTurns
from services.gateway.sessions.record import Session
from services.gateway.sessions.room import SessionRoom
from services.gateway.sessions.session_codec import decoded, encoded
from services.gateway.sessions.sqlite_database import SqliteDatabase
from services.gateway.sessions.sqlite_leases import SqliteLeases
from services.gateway.sessions.sqlite_media import SqliteMedia
from services.gateway.sessions.store import PageEnd
from services.runtime.errors import UnavailableError

SWEEP_INTERVAL_S = 5.0
SWEEP_SESSIONS = 500
"""Deleted in one commit."""


class SqliteStore:
    """See store.SessionStore. What a method has returned is committed; see SqliteDatabase for what that means.

    Args:
        path: of the file; images are in a folder beside it.
        now: Unix seconds.
    """

    def __init__(
        self, path: Path, now: Callable[[], float], room: SessionRoom, max_media_bytes: int
    ) -> None:
        self._database, self._now, self._room = SqliteDatabase(path), now, room
        self.media = SqliteMedia(self._database, path.with_suffix(".media"), max_media_bytes, now)
        self.leases = SqliteLeases(self._database, now)
        self._turns = LeasedTurns(self.leases)
        self._sweeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """See SessionStore. Raises DatabaseError where the file cannot be used."""
        await self._database.start()
        await self.media.start()
        self._sweeping = asyncio.create_task(self._sweep(), name="session sweep")

    async def close(self) -> None:
        """See SessionStore."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait((self._sweeping,))
            self._sweeping = None
        await self._database.close()

    async def create(self, session: Session) -> None:
        """See SessionStore."""
        row, room = _row(session), self._room

        def work(connection: sqlite3.Connection) -> None:
            (owned,) = connection.execute(
                "SELECT COUNT(*) FROM (SELECT 1 FROM sessions WHERE owner = ? LIMIT ?)",
                (session.owner, room.max_per_owner),
            ).fetchone()
            (held,) = connection.execute(
                "SELECT value FROM totals WHERE name = 'sessions'"
            ).fetchone()
            room.check(held, owned)
            connection.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?)", row)

        await self._database.change(work)

    async def load(self, owner: str, session_id: bytes) -> Session | None:
        """See SessionStore."""
        now_s = self._now()

        def work(connection: sqlite3.Connection) -> tuple[bytes, float] | None:
            found: tuple[bytes, float] | None = connection.execute(
                "SELECT record, expire_time FROM sessions WHERE id = ? AND owner = ? AND expire_time > ?",
                (session_id, owner, now_s),
            ).fetchone()
            return found

        row = await self._database.ask(work)
        return None if row is None else _session(*row)

    async def replace(self, session: Session) -> bool:
        """See SessionStore."""
        now_s, record = self._now(), encoded(session)

        def work(connection: sqlite3.Connection) -> bool:
            done = connection.execute(
                "UPDATE sessions SET record = ?, version = ?, expire_time = MAX(expire_time, ?)"
                " WHERE id = ? AND owner = ? AND version = ? AND expire_time > ?",
                (
                    *(record, session.version, session.expire_time_s),
                    *(session.session_id, session.owner, session.version - 1, now_s),
                ),
            )
            return done.rowcount == 1

        return await self._database.change(work)

    async def touch(self, owner: str, session_id: bytes) -> float | None:
        """See SessionStore."""
        session = await self.load(owner, session_id)
        if session is None:
            return None
        end_s = session.touched(self._now()).expire_time_s

        def work(connection: sqlite3.Connection) -> float | None:
            row = connection.execute(
                "UPDATE sessions SET expire_time = MAX(expire_time, ?) WHERE id = ? AND owner = ?"
                " RETURNING expire_time",
                (end_s, session_id, owner),
            ).fetchone()
            return None if row is None else float(row[0])

        return await self._database.change(work)

    async def delete(self, owner: str, session_id: bytes) -> bool:
        """See SessionStore."""
        now_s = self._now()

        def work(connection: sqlite3.Connection) -> bool:
            done = connection.execute(
                "DELETE FROM sessions WHERE id = ? AND owner = ? AND expire_time > ?",
                (session_id, owner, now_s),
            )
            return done.rowcount == 1

        deleted = await self._database.change(work)
        if deleted:
            await self.media.drop(session_id)
        return deleted

    async def page(self, owner: str, size: int, after: PageEnd | None) -> Sequence[Session]:
        """See SessionStore."""
        now_s, (before_s, before_id) = self._now(), after or (float("inf"), b"")

        def work(connection: sqlite3.Connection) -> list[tuple[bytes, float]]:
            return connection.execute(
                "SELECT record, expire_time FROM sessions WHERE owner = ? AND expire_time > ?"
                " AND (create_time, id) < (?, ?) ORDER BY create_time DESC, id DESC LIMIT ?",
                (owner, now_s, before_s, before_id, size),
            ).fetchall()

        rows = await self._database.ask(work)
        return [session for row in rows if (session := _session(*row)) is not None]

    def turn(self, session_id: bytes, wait_s: float) -> AbstractAsyncContextManager[None]:
        """See SessionStore."""
        return self._turns.hold(session_id, wait_s)

    async def sweep(self) -> int:
        """Forget some of what has expired; how many sessions."""
        now_s = self._now()

        def work(connection: sqlite3.Connection) -> list[bytes]:
            connection.execute("DELETE FROM leases WHERE end_time <= ?", (now_s,))
            rows = connection.execute(
                "DELETE FROM sessions WHERE id IN"
                " (SELECT id FROM sessions WHERE expire_time <= ? LIMIT ?) RETURNING id",
                (now_s, SWEEP_SESSIONS),
            ).fetchall()
            return [row[0] for row in rows]

        gone = await self._database.change(work)
        for session_id in {*gone, *await self.media.orphans()}:
            await self.media.drop(session_id)
        return len(gone)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_S)
            with suppress(UnavailableError):  # logged already; the next one may do
                while await self.sweep() == SWEEP_SESSIONS:
                    pass


def _row(session: Session) -> tuple[bytes, str, float, float, int, bytes]:
    return (
        session.session_id,
        session.owner,
        session.create_time_s,
        session.expire_time_s,
        session.version,
        encoded(session),
    )


def _session(record: bytes, expire_time_s: float) -> Session | None:
    session = decoded(record)
    return None if session is None else replace(session, expire_time_s=expire_time_s)
