"""One SQLite file, off the event loop: a thread that writes, many changes in one commit, and a thread that reads."""

import asyncio
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from services.gateway.sessions.away import away
from services.runtime.errors import ServiceError
from services.runtime.logs import get_logger

_log = get_logger()
Result = TypeVar("Result")
Work = Callable[[sqlite3.Connection], Any]

WAIT_S = 5.0
"""Longest wait for the file; then UNAVAILABLE."""
SET_UP_PAUSE_S = 0.05
MOST_AT_ONCE = 256
"""Changes in one commit."""
MAX_QUEUED = 10_000
"""Changes that wait; one more is UNAVAILABLE."""
SCHEMA_VERSION = 1
SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (
    id BLOB PRIMARY KEY, owner TEXT NOT NULL, create_time REAL NOT NULL, expire_time REAL NOT NULL,
    version INTEGER NOT NULL, record BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS sessions_of_owner ON sessions (owner, create_time, id);
CREATE INDEX IF NOT EXISTS sessions_by_end ON sessions (expire_time);
CREATE TABLE IF NOT EXISTS leases (
    key BLOB PRIMARY KEY, holder TEXT NOT NULL, end_time REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS media (
    session BLOB NOT NULL, digest BLOB NOT NULL, size INTEGER NOT NULL, use_time REAL NOT NULL,
    PRIMARY KEY (session, digest)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS media_by_use ON media (use_time);
CREATE TABLE IF NOT EXISTS totals (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO totals SELECT 'sessions', COUNT(*) FROM sessions;
INSERT OR IGNORE INTO totals SELECT 'media bytes', COALESCE(SUM(size), 0) FROM media;
CREATE TRIGGER IF NOT EXISTS session_came AFTER INSERT ON sessions BEGIN
    UPDATE totals SET value = value + 1 WHERE name = 'sessions'; END;
CREATE TRIGGER IF NOT EXISTS session_went AFTER DELETE ON sessions BEGIN
    UPDATE totals SET value = value - 1 WHERE name = 'sessions'; END;
CREATE TRIGGER IF NOT EXISTS image_came AFTER INSERT ON media BEGIN
    UPDATE totals SET value = value + NEW.size WHERE name = 'media bytes'; END;
CREATE TRIGGER IF NOT EXISTS image_went AFTER DELETE ON media BEGIN
    UPDATE totals SET value = value - OLD.size WHERE name = 'media bytes'; END;
"""
"""Totals are kept, because counting takes time in proportion to what there is."""


class DatabaseError(Exception):
    """The file cannot be used; the message says which, and why."""


class SqliteDatabase:
    """See the module. Several processes of one machine may have the file open.

    Write-ahead log, synchronous NORMAL: what was committed survives the process; a crash of the machine itself may take
    what came since the last checkpoint, never the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changes: SimpleQueue[tuple[Work, asyncio.Future[Any]] | None] = SimpleQueue()
        self._questions: SimpleQueue[tuple[Work, asyncio.Future[Any]] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    async def start(self) -> None:
        """Open the file, made where there is none. Raises DatabaseError."""
        if not self._threads:
            await asyncio.to_thread(self._prepare)
            self._loop = asyncio.get_running_loop()
            for name, work in (("writes", self._write), ("reads", self._read)):
                thread = threading.Thread(target=work, name=f"sessions {name}", daemon=True)
                self._threads.append(thread)
                thread.start()

    async def close(self) -> None:
        """Commit what waits, and let go. Idempotent."""
        threads, self._threads = self._threads, []
        if threads:
            self._changes.put(None)
            self._questions.put(None)
            for thread in threads:
                await asyncio.to_thread(thread.join, WAIT_S)

    async def change(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Do it, and return its result once it is committed. Raises UnavailableError."""
        if self._changes.qsize() >= MAX_QUEUED:
            raise away()
        return await self._answer(self._changes, work)

    async def ask(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Read. Raises UnavailableError."""
        return await self._answer(self._questions, work)

    async def _answer(self, queue: Any, work: Callable[[sqlite3.Connection], Result]) -> Result:
        if not self._threads:
            raise away()
        future: asyncio.Future[Result] = self._loop.create_future()
        queue.put((work, future))
        try:
            async with asyncio.timeout(WAIT_S):
                return await future
        except TimeoutError:
            raise away() from None

    def _prepare(self) -> None:
        folder = self._path.parent
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "rb") as file:
                found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                raise DatabaseError(f"{self._path}: must be a file of this user's own")
            self._set_up()
        except OSError as error:
            raise DatabaseError(f"{self._path}: {error.strerror}") from None
        except sqlite3.Error as error:
            raise DatabaseError(f"{self._path}: is no session file, or damaged ({error})") from None

    def _set_up(self) -> None:
        """Gateways that start together meet here, and SQLite does not wait for the change to a write-ahead log."""
        give_up_s = time.monotonic() + WAIT_S
        while True:
            connection = self._open()
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                if version not in (0, SCHEMA_VERSION):
                    raise DatabaseError(
                        f"{self._path}: of version {version}; this program knows {SCHEMA_VERSION}"
                    )
                connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT;")
                connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > give_up_s:
                    raise
                time.sleep(SET_UP_PAUSE_S)
            else:
                return
            finally:
                connection.close()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=WAIT_S, isolation_level=None)
        connection.execute("PRAGMA synchronous=NORMAL")
        return connection

    def _write(self) -> None:
        connection = self._open()
        ended = False
        while not ended:
            batch = [self._changes.get()]
            while len(batch) < MOST_AT_ONCE and not self._changes.empty():
                batch.append(self._changes.get())
            ended = batch[-1] is None
            self._commit(connection, [item for item in batch if item is not None])
        connection.close()

    def _commit(
        self, connection: sqlite3.Connection, batch: list[tuple[Work, asyncio.Future[Any]]]
    ) -> None:
        results: list[tuple[asyncio.Future[Any], Any]] = []
        try:
            connection.execute("BEGIN IMMEDIATE")
            for work, future in batch:
                results.append((future, _apart(connection, work)))
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            _log.error("sessions could not be written", problem=str(error))
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            results = [(future, away()) for _, future in batch]
        self._tell(results)

    def _read(self) -> None:
        connection = self._open()
        while (item := self._questions.get()) is not None:
            work, future = item
            self._tell([(future, _done(connection, work))])
        connection.close()

    def _tell(self, results: list[tuple[asyncio.Future[Any], Any]]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_settle, results)


def _apart(connection: sqlite3.Connection, work: Work) -> Any:
    """One of several changes in a commit: what goes wrong with it concerns it alone."""
    connection.execute("SAVEPOINT one")
    result = _done(connection, work)
    if isinstance(result, ServiceError):
        connection.execute("ROLLBACK TO one")
    connection.execute("RELEASE one")
    return result


def _done(connection: sqlite3.Connection, work: Work) -> Any:
    """What it returns, or a ServiceError."""
    try:
        return work(connection)
    except ServiceError as error:
        return error
    # The top of the thread: whatever it is, the others' work goes on, and the log has the cause.
    except Exception:  # noqa: BLE001
        _log.exception("the session file failed a call")
        return away()


def _settle(results: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in results:
        if future.done():
            continue  # nobody waits any more
        if isinstance(result, ServiceError):
            future.set_exception(result)
        else:
            future.set_result(result)
