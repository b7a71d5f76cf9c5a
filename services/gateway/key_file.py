"""The keys file on disk: read whole, checked, and replaced whole, so that a reader never sees half of it."""

import fcntl
import json
import os
import stat
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from services.gateway.key_document import KeyDocument, problems

MAX_FILE_BYTES = 16 * 1024 * 1024
"""Some 10,000 keys with all that can be said of them."""
LOCK_TIMEOUT_S = 10.0
"""Longest wait for another writer, who needs milliseconds."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_READ = stat.S_IRGRP | stat.S_IROTH


class KeyFileError(Exception):
    """The file cannot be used, or cannot be changed; the message names it and says why, for operators."""


def read(path: Path) -> tuple[KeyDocument, list[str]]:
    """The keys of a file, and warnings about it.

    Refused where others may write it: they could let themselves in. Where others may only read it there is a warning:
    hashes open nothing, but names and owners are told.

    Raises:
        KeyFileError: no such file, not readable, no document of this version, or writable by others.
    """
    try:
        data, mode = _content(path)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        hint = f"; `hotline key add NAME --file {path}` makes it" if missing else ""
        raise KeyFileError(f"{path}: {error.strerror or error}{hint}") from None
    if mode & _OTHERS_WRITE:
        raise KeyFileError(f"{path}: others may write it (mode {mode:04o}): chmod 600 {path}")
    warnings = []
    if mode & _OTHERS_READ:
        warnings.append(f"{path}: others may read names and owners (mode {mode:04o})")
    twice = _name_that_stands_twice(data)
    if twice is not None:
        raise KeyFileError(f"{path}: {twice!r} stands twice in one object")
    try:
        return KeyDocument.model_validate_json(data), warnings
    except ValidationError as error:
        lines = "\n".join(f"{path}: {line}" for line in problems(error))
        raise KeyFileError(lines) from None


def _name_that_stands_twice(data: bytes) -> str | None:
    """In one object; a parser would take the last one, and a key that looks revoked would open."""
    found: list[str] = []

    def look(pairs: list[tuple[str, object]]) -> None:
        names = [name for name, _ in pairs]
        if len({*names}) < len(names):
            found.extend(name for name in names if names.count(name) > 1)

    try:
        json.loads(data, object_pairs_hook=look)
    except (ValueError, RecursionError):
        return None  # no JSON at all, which is told elsewhere
    return found[0] if found else None


def _content(path: Path) -> tuple[bytes, int]:
    # Not blocking: a named pipe would hold an open() until somebody writes.
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "is no regular file")
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise OSError(0, f"is larger than the limit of {MAX_FILE_BYTES} bytes")
    return data, stat.S_IMODE(status.st_mode)


@contextmanager
def changing(path: Path) -> Generator[Path, None, None]:
    """The block is the only writer of this file; yields where it really is, behind links.

    Raises:
        KeyFileError: another writer does not end, or there is no such folder.
    """
    path = path.resolve()
    # Beside the file, because the file itself is replaced: a lock on it would be one on the old file.
    lock = path.with_name(f".{path.name}.lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise KeyFileError(f"{lock}: {error.strerror}") from None
    try:
        _lock(descriptor, path)
        yield path
    finally:
        os.close(descriptor)  # and with it the lock goes, also where this process is killed


def _lock(descriptor: int, path: Path) -> None:
    # flock knows no deadline. A thread of its own has one; where it passes, the command ends and the thread with it.
    waiting = threading.Thread(
        target=fcntl.flock, args=(descriptor, fcntl.LOCK_EX), daemon=True, name="keys file lock"
    )
    waiting.start()
    waiting.join(LOCK_TIMEOUT_S)
    if waiting.is_alive():
        raise KeyFileError(f"{path}: another command has been changing it for {LOCK_TIMEOUT_S:g} s")


def write(path: Path, document: KeyDocument) -> None:
    """Replace the file, readable by its owner alone. Raises KeyFileError; the old file then stands as it was."""
    text = document.model_dump_json(indent=2, exclude_defaults=False, exclude_none=True) + "\n"
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # 0600
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise KeyFileError(f"{path}: {error.strerror}") from None
    finally:
        with suppress(OSError):  # there is none any more where all went well
            os.unlink(temporary)


def _sync_folder(folder: Path) -> None:
    """A rename outlives a loss of power only when its folder is written too."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
