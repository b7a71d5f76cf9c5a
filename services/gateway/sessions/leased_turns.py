"""One turn of a session at a time, over all gateways that share a store."""

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from services.gateway.sessions.store import Leases
from services.gateway.sessions.turn_locks import TurnLocks, busy
from services.runtime.errors import UnavailableError

LEASE_S = 10.0
"""How long the session of a gateway that was killed in the middle of a turn stays closed."""
RENEWALS = 3
"""In the time of one lease."""
LOOK_AGAIN_S = 0.05
"""Another gateway's end of a turn is found by looking: it cannot tell."""
_PREFIX = b"turn:"


class LeasedTurns:
    """Those of one process wait in line, as TurnLocks says; the first of the line takes the lease."""

    def __init__(self, leases: Leases, lease_s: float = LEASE_S) -> None:
        self._leases, self._lease_s = leases, lease_s
        self._local = TurnLocks()
        self._holder = secrets.token_hex(8)

    @asynccontextmanager
    async def hold(self, session_id: bytes, wait_s: float) -> AsyncGenerator[None, None]:
        """See store.SessionStore.turn."""
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + wait_s
        async with self._local.hold(session_id, wait_s):
            key = _PREFIX + session_id
            while await self._leases.claim(key, self._holder, self._lease_s) != self._holder:
                if loop.time() + LOOK_AGAIN_S > give_up_s:
                    raise busy("it has a turn running")
                await asyncio.sleep(LOOK_AGAIN_S)
            renewing = asyncio.create_task(self._renew(key), name="turn lease")
            try:
                yield
            finally:
                renewing.cancel()
                # Not to be cut short, also by a second cancel: else the session stays closed until the lease ends by
                # itself.
                await asyncio.shield(asyncio.create_task(self._let_go(key, renewing)))

    async def _renew(self, key: bytes) -> None:
        """A lease that is lost does no harm: of two turns at once only one can be committed."""
        while True:
            await asyncio.sleep(self._lease_s / RENEWALS)
            with suppress(UnavailableError):
                await self._leases.claim(key, self._holder, self._lease_s)

    async def _let_go(self, key: bytes, renewing: asyncio.Task[None]) -> None:
        await asyncio.wait((renewing,))
        with suppress(UnavailableError):
            await self._leases.release(key, self._holder)


class SoleLeases:
    """See store.Leases: those of a gateway that shares its store with nobody. It has everything that it asks for."""

    async def claim(self, key: bytes, holder: str, ttl_s: float) -> str:
        """See Leases."""
        return holder

    async def holder(self, key: bytes) -> str:
        """See Leases."""
        return ""

    async def release(self, key: bytes, holder: str) -> None:
        """See Leases."""
