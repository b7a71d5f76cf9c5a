"""The keys in force: who may call, found by the text of a key."""

import hmac
import secrets
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from services.gateway import key_file
from services.gateway.api_key import key_hash, public_id
from services.gateway.caller import Caller
from services.gateway.key_document import KeyDocument, StoredKey
from services.runtime.logs import get_logger

_log = get_logger()


class KeyRing:
    """The keys of one document, replaced as a whole by `take`."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        """`now`: the wall clock, with its time zone; keys expire by it."""
        self._now = now
        self._keys: dict[str, tuple[StoredKey, Caller]] = {}
        self._no_hash = key_hash(secrets.token_urlsafe())
        """What an unknown id is compared with, so that it takes as long as a known one."""

    def take(self, document: KeyDocument) -> None:
        """Put these keys in the place of the old ones. Calls that run go on: they were welcome when they came."""
        self._keys = {key.id: (key, key.caller()) for key in document.keys}

    @property
    def usable_count(self) -> int:
        """Keys that are neither revoked nor expired."""
        now = self._now()
        return sum(not (key.disabled or key.expired(now)) for key, _ in self._keys.values())

    def find(self, text: str) -> Caller | None:
        """Whose key this is; None where it is no key, or one that is unknown, revoked or expired.

        Only the log tells these apart, by the public id, and only for who has the whole key.
        """
        key_id = public_id(text)
        if key_id is None:
            return None
        found = self._keys.get(key_id)
        wanted = self._no_hash if found is None else found[0].hash
        same = hmac.compare_digest(key_hash(text), wanted)
        if found is None or not same:
            return None
        key, caller = found
        if key.disabled or key.expired(self._now()):
            _log.info("key refused", key=key.id, why="revoked" if key.disabled else "expired")
            return None
        return caller


class FileKeyRing(KeyRing):
    """The keys of a file."""

    def __init__(self, path: Path, now: Callable[[], datetime]) -> None:
        super().__init__(now)
        self._path = path

    def load(self) -> None:
        """Read the file; where that fails, the keys stay as they are. Blocks: some ms for a thousand keys.

        Raises:
            KeyFileError: why it cannot be used.
        """
        document, warnings = key_file.read(self._path)
        for warning in warnings:
            _log.warning("keys file", problem=warning)
        self.take(document)
        usable = self.usable_count
        # None is no error: who revokes the last one means it.
        log = _log.info if usable else _log.warning
        log("keys read", keys=len(document.keys), usable=usable)
