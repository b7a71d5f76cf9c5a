"""What can be done with sessions, by their owners."""

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from services.gateway.cache_salt import session_salt
from services.gateway.sessions.record import CacheScope, HistoryPolicy, Session, StoredMessage
from services.gateway.sessions.settings import LEAST_TTL_S, SessionSettings
from services.gateway.sessions.store import PageEnd, SessionStore
from services.gateway.sessions.turn import not_found
from services.runtime.errors import InvalidArgumentError, SessionBusyError

ID_BYTES = 16
MAX_PAGE, DEFAULT_PAGE = 1_000, 100
MAX_IMAGES_KEPT = 10
CHANGE_ATTEMPTS = 5
"""For a change of a session that somebody else changes at the same time."""
_ID = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True)
class Wanted:
    """How a session is to be; None: as configured."""

    idle_ttl_s: float | None = None
    absolute_ttl_s: float | None = None
    cache_scope: CacheScope = CacheScope.OWNER
    policy: HistoryPolicy = field(default_factory=HistoryPolicy)


@dataclass(frozen=True)
class TtlFields:
    """What a client calls the two, for errors."""

    idle: str = "idle_ttl"
    absolute: str = "absolute_ttl"


class Sessions:
    """The sessions of a gateway.

    Args:
        now: Unix seconds.
        opened: told of every new one.
    """

    def __init__(
        self,
        store: SessionStore,
        settings: SessionSettings,
        now: Callable[[], float],
        opened: Callable[[], None] = lambda: None,
    ) -> None:
        self.store, self._settings, self._now, self._opened = store, settings, now, opened

    def begin(
        self, owner: str, model: str, wanted: Wanted, fields: TtlFields = TtlFields()
    ) -> Session:
        """A new session, which is not kept yet. Raises InvalidArgumentError for a TTL out of bounds."""
        # In milliseconds, which every store keeps: it is the order of pages.
        settings, now_s = self._settings, round(self._now(), 3)
        absolute_s = _ttl(
            fields.absolute,
            wanted.absolute_ttl_s,
            settings.default_absolute_ttl_s,
            settings.max_absolute_ttl_s,
        )
        idle_s = _ttl(
            fields.idle, wanted.idle_ttl_s, settings.default_idle_ttl_s, settings.max_idle_ttl_s
        )
        session_id = secrets.token_bytes(ID_BYTES)
        return Session(
            session_id,
            owner,
            model,
            now_s,
            now_s + min(idle_s, absolute_s),
            idle_s,
            absolute_s,
            wanted.cache_scope,
            wanted.policy,
            salt=_new_salt(session_id) if wanted.cache_scope is CacheScope.SESSION else "",
        )

    async def keep(self, session: Session) -> Session:
        """Keep a new session. Raises OverloadedError."""
        await self.store.create(session)
        self._opened()
        return session

    async def furnish(self, session: Session, preamble: tuple[StoredMessage, ...]) -> Session:
        """Give a session that was just opened what it begins with. Raises SessionNotFoundError where it is gone again."""
        media = frozenset(digest for message in preamble for digest in message.media)
        changed = replace(session, preamble=preamble, media=media, version=session.version + 1)
        if not await self.store.replace(changed):
            raise not_found()
        return changed

    async def get(self, owner: str, session_id: str) -> Session:
        """A session. Raises SessionNotFoundError; InvalidArgumentError for what is no id."""
        session = await self.store.load(owner, parsed(session_id))
        if session is None:
            raise not_found()
        return session

    async def page(
        self, owner: str, size: int, after: PageEnd | None
    ) -> tuple[Sequence[Session], PageEnd | None]:
        """The owner's sessions, newest first, and where the next page begins; None: there is none."""
        size = size or DEFAULT_PAGE
        found = await self.store.page(owner, size + 1, after)
        page = found[:size]
        end = (page[-1].create_time_s, page[-1].session_id) if len(found) > size else None
        return page, end

    async def touch(self, owner: str, session_id: str) -> float:
        """Begin the idle TTL again; the new expiry. Raises as `get`."""
        expire_time_s = await self.store.touch(owner, parsed(session_id))
        if expire_time_s is None:
            raise not_found()
        return expire_time_s

    async def clear(self, owner: str, session_id: str, forget_history: bool) -> Session:
        """Make the session's KV unreachable: its salt is a fresh one, of its own. A turn that runs is not committed.

        Args:
            forget_history: all messages and images go too, also those that it was opened with.

        Raises as `get`; SessionBusyError where others change it all the time.
        """
        for _ in range(CHANGE_ATTEMPTS):
            session = await self.get(owner, session_id)
            changed = replace(
                session.touched(self._now()),
                salt=_new_salt(session.session_id),
                worker="",
                version=session.version + 1,
            )
            if forget_history:
                changed = replace(
                    changed,
                    preamble=(),
                    turns=(),
                    turn_count=0,
                    options_digest=b"",
                    media=frozenset(),
                )
            if await self.store.replace(changed):
                if forget_history:
                    await self.store.media.drop(session.session_id)
                return changed
        raise SessionBusyError(
            "session_id: others change this session at the same time.",
            metadata={"field": "session_id"},
            retry_delay_s=1.0,
        )

    async def delete(self, owner: str, session_id: str) -> bool:
        """Forget it; whether it was there. Raises InvalidArgumentError for what is no id."""
        return await self.store.delete(owner, parsed(session_id))


def parsed(session_id: str) -> bytes:
    """The id in a client's text. Raises InvalidArgumentError for what cannot be one."""
    if not _ID.fullmatch(session_id):
        raise InvalidArgumentError("session_id", session_id, "32 hexadecimal digits in lower case")
    return bytes.fromhex(session_id)


def _new_salt(session_id: bytes) -> str:
    return session_salt(session_id, secrets.randbits(64))


def _ttl(field: str, asked_s: float | None, default_s: float, most_s: float) -> float:
    if asked_s is None:
        return default_s
    if not LEAST_TTL_S <= asked_s <= most_s:
        raise InvalidArgumentError(field, asked_s, f"{LEAST_TTL_S:g} to {most_s:g} seconds")
    return asked_s
