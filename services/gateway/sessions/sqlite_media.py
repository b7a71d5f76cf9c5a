"""Images of sessions in files, one folder for each session, and a table that knows how long they were not used."""

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

from services.gateway.sessions.sqlite_database import SqliteDatabase
from services.runtime.logs import get_logger

_log = get_logger()


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
        if not await asyncio.to_thread(_write, path, data):
            return

        def work(connection: sqlite3.Connection) -> list[tuple[bytes, bytes]]:
            connection.execute(
                "INSERT OR REPLACE INTO media VALUES (?, ?, ?, ?)",
                (session_id, digest, len(data), now_s),
            )
            return _beyond(connection, most)

        for gone in await self._database.change(work):
            await asyncio.to_thread(self._path(*gone).unlink, missing_ok=True)

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
    (held,) = connection.execute("SELECT COALESCE(SUM(size), 0) FROM media").fetchone()
    gone: list[tuple[bytes, bytes]] = []
    while held > most:
        session, digest, size = connection.execute(
            "SELECT session, digest, size FROM media ORDER BY use_time LIMIT 1"
        ).fetchone()
        connection.execute("DELETE FROM media WHERE session = ? AND digest = ?", (session, digest))
        gone.append((session, digest))
        held -= size
    return gone


def _write(path: Path, data: bytes) -> bool:
    """Whether it is there, whole: under its name only once it is."""
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
        return False
    return True


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
