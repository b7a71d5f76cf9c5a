"""What every place that keeps sessions can do. All of it is bound to an owner: a foreign id is an absent one."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from services.gateway.sessions.record import Session

PageEnd = tuple[float, bytes]
"""`create_time_s` and id of the last session of a page."""


class SessionStore(Protocol):
    """Keeps sessions until they expire. Methods raise UnavailableError where the store does not answer in time."""

    @property
    def media(self) -> "MediaStore":
        """The images of its sessions."""

    @property
    def leases(self) -> "Leases":
        """Those of all gateways that share this store."""

    async def start(self) -> None:
        """Open it; begin to sweep what expires."""

    async def close(self) -> None:
        """Write what is not written yet, and let go. Idempotent."""

    async def create(self, session: Session) -> None:
        """Keep a new one. Raises OverloadedError where there are as many as may be, of all or of this owner."""

    async def load(self, owner: str, session_id: bytes) -> Session | None:
        """The session; None for an absent, foreign or expired one."""

    async def replace(self, session: Session) -> bool:
        """Put a changed record (`version` one higher) in place of the one it was made from.

        False, and nothing changed, where that is gone or was changed meanwhile. The expiry is part of the record; a touch
        that came meanwhile is kept where it reaches further.
        """

    async def touch(self, owner: str, session_id: bytes) -> float | None:
        """Begin the idle TTL again; the new expiry, or None as `load`."""

    async def delete(self, owner: str, session_id: bytes) -> bool:
        """Forget it; whether it was there."""

    async def page(self, owner: str, size: int, after: PageEnd | None) -> Sequence[Session]:
        """The owner's sessions, newest first (by creation, then id), from behind `after`."""

    def turn(self, session_id: bytes, wait_s: float) -> AbstractAsyncContextManager[None]:
        """Hold the session's turn: one at a time, over all gateways that share the store.

        Raises SessionBusyError where another one is not over within `wait_s`; 0: at once. Those that wait come in turn.
        """


class Leases(Protocol):
    """Who has what, over all gateways that share a store. A lease ends by itself, so that a gateway that is killed keeps
    nothing."""

    async def claim(self, key: bytes, holder: str, ttl_s: float) -> str:
        """Who has it now: `holder`, for so long from now on, where nobody else had it."""

    async def holder(self, key: bytes) -> str:
        """Who has it; empty: nobody."""

    async def release(self, key: bytes, holder: str) -> None:
        """It is free again, where `holder` had it."""


class MediaStore(Protocol):
    """Keeps encoded images by session and SHA-256, bounded in bytes; the longest unused go first.

    By session, so that whoever knows the digest of somebody's image gains nothing, and the session's end is their end.
    """

    async def put(self, session_id: bytes, digest: bytes, data: bytes) -> None:
        """Keep these bytes. What is larger than the bound is not kept."""

    async def get(self, session_id: bytes, digest: bytes) -> bytes | None:
        """The bytes; None where they are not kept (any more)."""

    async def drop(self, session_id: bytes) -> None:
        """Forget all of a session's; a session store does so when one expires or is deleted."""

    async def close(self) -> None:
        """Let go. Idempotent."""
