"""Sessions on a Redis or Valkey server, for several gateways."""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from services.gateway.sessions import redis_scripts
from services.gateway.sessions.leased_turns import LeasedTurns
from services.gateway.sessions.record import Session
from services.gateway.sessions.redis_server import RedisServer
from services.gateway.sessions.room import SessionRoom
from services.gateway.sessions.session_codec import decoded, encoded
from services.gateway.sessions.store import PageEnd

PAGE_SCAN = 256
"""Ids of one owner that are looked at together."""


class RedisStore:
    """See store.SessionStore. Sessions expire on the server, by its clock and by ours.

    Args:
        url: with the password, which is never logged.
        prefix: of all keys.
        now: Unix seconds.
        max_media_bytes: of the images of one session; the server's own memory policy bounds all of them.
    """

    def __init__(
        self,
        url: str,
        prefix: str,
        now: Callable[[], float],
        room: SessionRoom,
        max_media_bytes: int,
    ) -> None:
        self._server, self._prefix = RedisServer(url), prefix
        self._now, self._room = now, room
        self.media = RedisMedia(self._server, prefix, max_media_bytes)
        self.leases = RedisLeases(self._server, prefix)
        self._turns = LeasedTurns(self.leases)
        self._create = self._server.script(redis_scripts.CREATE)
        self._replace = self._server.script(redis_scripts.REPLACE)
        self._touch = self._server.script(redis_scripts.TOUCH)
        self._delete = self._server.script(redis_scripts.DELETE)

    async def start(self) -> None:
        """See SessionStore. The server need not be there yet."""

    async def close(self) -> None:
        """See SessionStore."""
        await self._server.close()

    async def create(self, session: Session) -> None:
        """See SessionStore."""
        made, held, owned = await self._create(
            [
                self._key(session.session_id),
                self._owned(session.owner),
                self._ends,
                self.media.key(session.session_id),
            ],
            [
                *(session.session_id.hex(), session.owner, encoded(session), session.version),
                *(_ms(session.create_time_s), _ms(session.expire_time_s), _ms(self._now())),
                *(self._room.max_sessions, self._room.max_per_owner),
            ],
        )
        if not made:
            self._room.check(held, owned)

    async def load(self, owner: str, session_id: bytes) -> Session | None:
        """See SessionStore."""
        command = self._server.client.hmget(self._key(session_id), "owner", "record", "end")
        return self._found(owner, await self._server.answer(command))

    def _found(self, owner: str, fields: Sequence[bytes | None]) -> Session | None:
        kept_owner, record, end = fields
        if record is None or end is None or kept_owner != owner.encode():
            return None
        end_s = int(end) / 1000
        session = decoded(record) if end_s > self._now() else None
        return None if session is None else replace(session, expire_time_s=end_s)

    async def replace(self, session: Session) -> bool:
        """See SessionStore."""
        done = await self._replace(
            [self._key(session.session_id), self._ends, self.media.key(session.session_id)],
            [
                *(session.session_id.hex(), session.owner, encoded(session), session.version),
                *(_ms(session.expire_time_s), _ms(self._now())),
            ],
        )
        return bool(done)

    async def touch(self, owner: str, session_id: bytes) -> float | None:
        """See SessionStore."""
        session = await self.load(owner, session_id)
        if session is None:
            return None
        now_s = self._now()
        end = await self._touch(
            [self._key(session_id), self._ends, self.media.key(session_id)],
            [session_id.hex(), owner, _ms(session.touched(now_s).expire_time_s), _ms(now_s)],
        )
        return None if int(end) < 0 else int(end) / 1000

    async def delete(self, owner: str, session_id: bytes) -> bool:
        """See SessionStore."""
        keys = [self._key(session_id), self._owned(owner), self._ends, self.media.key(session_id)]
        return bool(await self._delete(keys, [session_id.hex(), owner, _ms(self._now())]))

    async def page(self, owner: str, size: int, after: PageEnd | None) -> Sequence[Session]:
        """See SessionStore."""
        latest = float("inf") if after is None else _ms(after[0])
        page: list[Session] = []
        start = 0
        while len(page) < size:
            ids = await self._server.answer(
                self._server.client.zrevrangebyscore(
                    self._owned(owner), latest, "-inf", start=start, num=PAGE_SCAN
                )
            )
            for text in ids:
                session = await self.load(owner, bytes.fromhex(text.decode()))
                if session is None:
                    await self._server.answer(self._server.client.zrem(self._owned(owner), text))
                    start -= 1
                elif (after is None or _place(session) < after) and len(page) < size:
                    page.append(session)
            if len(ids) < PAGE_SCAN:
                break
            start += len(ids)
        return page

    def turn(self, session_id: bytes, wait_s: float) -> AbstractAsyncContextManager[None]:
        """See SessionStore."""
        return self._turns.hold(session_id, wait_s)

    def _key(self, session_id: bytes) -> str:
        return session_key(self._prefix, session_id)

    def _owned(self, owner: str) -> str:
        return f"{self._prefix}:owner:{hashlib.sha256(owner.encode()).hexdigest()[:40]}"

    @property
    def _ends(self) -> str:
        return f"{self._prefix}:ends"


class RedisLeases:
    """See store.Leases."""

    def __init__(self, server: RedisServer, prefix: str) -> None:
        self._server, self._prefix = server, prefix
        self._claim = server.script(redis_scripts.CLAIM)
        self._release = server.script(redis_scripts.RELEASE)

    async def claim(self, key: bytes, holder: str, ttl_s: float) -> str:
        """See Leases."""
        answer: bytes = await self._claim([self._key(key)], [holder, _ms(ttl_s)])
        return answer.decode()

    async def holder(self, key: bytes) -> str:
        """See Leases."""
        answer: bytes | None = await self._server.answer(self._server.client.get(self._key(key)))
        return "" if answer is None else answer.decode()

    async def release(self, key: bytes, holder: str) -> None:
        """See Leases."""
        await self._release([self._key(key)], [holder])

    def _key(self, key: bytes) -> str:
        return f"{self._prefix}:lease:{key.hex()}"


OPENING_S = 60
"""For images of a session that is being opened."""


class RedisMedia:
    """See store.MediaStore: a hash for each session, which ends with it.

    Args:
        max_bytes: of the images of one session; one that does not fit is not kept.
    """

    def __init__(self, server: RedisServer, prefix: str, max_bytes: int) -> None:
        self._server, self._prefix, self._max_bytes = server, prefix, max_bytes
        self._put = server.script(redis_scripts.PUT_IMAGE)

    async def put(self, session_id: bytes, digest: bytes, data: bytes) -> None:
        """See MediaStore."""
        keys = [self.key(session_id), session_key(self._prefix, session_id)]
        await self._put(keys, [digest, data, self._max_bytes, _ms(OPENING_S)])

    async def get(self, session_id: bytes, digest: bytes) -> bytes | None:
        """See MediaStore."""
        command = self._server.client.hget(self.key(session_id), digest)
        data: bytes | None = await self._server.answer(command)
        return data

    async def drop(self, session_id: bytes) -> None:
        """See MediaStore."""
        await self._server.answer(self._server.client.delete(self.key(session_id)))

    async def close(self) -> None:
        """See MediaStore."""

    def key(self, session_id: bytes) -> str:
        """Of a session's images."""
        return f"{self._prefix}:media:{session_id.hex()}"


def session_key(prefix: str, session_id: bytes) -> str:
    """Of a session's record."""
    return f"{prefix}:session:{session_id.hex()}"


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _place(session: Session) -> PageEnd:
    return session.create_time_s, session.session_id
