"""Leases in a SQLite file."""

import sqlite3
from collections.abc import Callable

from services.gateway.sessions.sqlite_database import SqliteDatabase


class SqliteLeases:
    """See store.Leases.

    Args:
        now: Unix seconds.
    """

    def __init__(self, database: SqliteDatabase, now: Callable[[], float]) -> None:
        self._database, self._now = database, now

    async def claim(self, key: bytes, holder: str, ttl_s: float) -> str:
        """See Leases."""
        now_s = self._now()

        def work(connection: sqlite3.Connection) -> str:
            row = connection.execute(
                "INSERT INTO leases VALUES (?1, ?2, ?3) ON CONFLICT (key) DO UPDATE SET"
                " end_time = CASE WHEN holder = ?2 OR end_time <= ?4 THEN ?3 ELSE end_time END,"
                " holder = CASE WHEN end_time <= ?4 THEN ?2 ELSE holder END"
                " RETURNING holder",
                (key, holder, now_s + ttl_s, now_s),
            ).fetchone()
            return str(row[0])

        return await self._database.change(work)

    async def holder(self, key: bytes) -> str:
        """See Leases."""
        now_s = self._now()

        def work(connection: sqlite3.Connection) -> str:
            row = connection.execute(
                "SELECT holder FROM leases WHERE key = ? AND end_time > ?", (key, now_s)
            ).fetchone()
            return "" if row is None else str(row[0])

        return await self._database.ask(work)

    async def release(self, key: bytes, holder: str) -> None:
        """See Leases."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM leases WHERE key = ? AND holder = ?", (key, holder))

        await self._database.change(work)
