"""Images of sessions in files, one folder for each session, and a table that knows how long they were not used."""

import asyncio
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from services.gateway.sessions.sqlite_database import SqliteDatabase
from services.runtime.logs import get_logger

_log = get_logger()

OPENING_S = 60.0
"""Images may be there so long before their session."""
ORPHANS_AT_ONCE = 500


class SqliteMedia:
    """See store.MediaStore.

    Args:
        folder: of its own; made where there is none.
        max_bytes: of all images.
        now: Unix seconds.
    """

    def __init__(
        self, database: SqliteDatabase, folder: Path, max_bytes: int, now: Callable[[], float]
    ) -> None:
        self._database, self._folder = database, folder
        self._max_bytes, self._now = max_bytes, now

    async def put(self, session_id: bytes, digest: bytes, data: bytes) -> None:
        """See MediaStore."""
        if len(data) > self._max_bytes:
            return
        path, now_s, most = self._path(session_id, digest), self._now(), self._max_bytes

        def work(connection: sqlite3.Connection) -> list[tuple[bytes, bytes]]:
            connection.execute(
                "INSERT INTO media VALUES (?1, ?2, ?3, ?4)"
                " ON CONFLICT (session, digest) DO UPDATE SET use_time = ?4",
                (session_id, digest, len(data), now_s),
            )
            return _beyond(connection, most)

        # The row first: a file without one would never be counted, nor found.
        for gone in await self._database.change(work):
            await asyncio.to_thread(self._path(*gone).unlink, missing_ok=True)
        await asyncio.to_thread(_write, path, data)

    async def get(self, session_id: bytes, digest: bytes) -> bytes | None:
        """See MediaStore."""
        data = await asyncio.to_thread(_read, self._path(session_id, digest))
        if data is None:
            return None
        now_s = self._now()

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(
                "UPDATE media SET use_time = ? WHERE session = ? AND digest = ?",
                (now_s, session_id, digest),
            )

        await self._database.change(work)
        return data

    async def start(self) -> None:
        """Remove the folders that no row knows: of sessions that ended while nobody could remove them."""

        def work(connection: sqlite3.Connection) -> set[str]:
            return {row[0].hex() for row in connection.execute("SELECT session FROM media")}

        known = await self._database.ask(work)
        await asyncio.to_thread(_remove_others, self._folder, known)

    async def orphans(self) -> list[bytes]:
        """Sessions that are gone and have images."""
        before_s = self._now() - OPENING_S

        def work(connection: sqlite3.Connection) -> list[bytes]:
            rows = connection.execute(
                "SELECT DISTINCT session FROM media WHERE use_time < ?"
                " AND session NOT IN (SELECT id FROM sessions) LIMIT ?",
                (before_s, ORPHANS_AT_ONCE),
            )
            return [row[0] for row in rows]

        return await self._database.ask(work)

    async def drop(self, session_id: bytes) -> None:
        """See MediaStore."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM media WHERE session = ?", (session_id,))

        await self._database.change(work)
        folder = self._path(session_id, b"").parent
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def close(self) -> None:
        """See MediaStore."""

    def _path(self, session_id: bytes, digest: bytes) -> Path:
        # In hexadecimal digits: no name of a client's comes near a path.
        return self._folder / session_id.hex() / (digest.hex() or "-")


def _beyond(connection: sqlite3.Connection, most: int) -> list[tuple[bytes, bytes]]:
    """Take the longest unused out of the table until the rest fits."""
    (held,) = connection.execute("SELECT value FROM totals WHERE name = 'media bytes'").fetchone()
    gone: list[tuple[bytes, bytes]] = []
    while held > most:
        session, digest, size = connection.execute(
            "SELECT session, digest, size FROM media ORDER BY use_time LIMIT 1"
        ).fetchone()
        connection.execute("DELETE FROM media WHERE session = ? AND digest = ?", (session, digest))
        gone.append((session, digest))
        held -= size
    return gone


def _remove_others(folder: Path, known: set[str]) -> None:
    now_s = time.time()
    for path in folder.glob("*"):
        # Another gateway may have made it just now.
        if path.name not in known and path.stat().st_mtime < now_s - OPENING_S:
            shutil.rmtree(path, ignore_errors=True)


def _write(path: Path, data: bytes) -> None:
    """Under its name only once it is whole."""
    unfinished = path.with_suffix(f".{os.getpid()}")
    try:
        for folder in (path.parent.parent, path.parent):  # the mode is of the last one alone
            folder.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        unfinished.replace(path)
    except OSError as error:
        _log.warning("an image could not be kept", problem=error.strerror)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
