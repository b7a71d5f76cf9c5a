"""One turn of a session at a time, in this process."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from services.runtime.errors import SessionBusyError

MAX_WAITING = 16
"""Turns of one session that may wait."""
RETRY_DELAY_S = 1.0


class TurnLocks:
    """Holds the turns of sessions; a session without one takes no room."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def hold(self, session_id: bytes, wait_s: float) -> AsyncGenerator[None, None]:
        """Hold it until the context ends; who waits comes in turn.

        Raises SessionBusyError where another turn is not over within `wait_s` seconds; 0: at once.
        """
        if session_id in self._waiting:
            await self._wait(session_id, wait_s)
        else:
            self._waiting[session_id] = deque()
        try:
            yield
        finally:
            self._pass_on(session_id)

    async def _wait(self, session_id: bytes, wait_s: float) -> None:
        queue = self._waiting[session_id]
        if wait_s <= 0:
            raise busy("it has a turn running")
        if len(queue) >= MAX_WAITING:
            raise busy(f"{MAX_WAITING} turns wait for the one that is running")
        place = asyncio.get_running_loop().create_future()
        queue.append(place)
        try:
            async with asyncio.timeout(wait_s):
                await place
        except TimeoutError:
            if place.done() and not place.cancelled():
                return  # it came just now
            _take_out(queue, place)
            raise busy(f"its turn was not over within {wait_s:g} s") from None
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._pass_on(session_id)
            else:
                _take_out(queue, place)
            raise

    def _pass_on(self, session_id: bytes) -> None:
        queue = self._waiting[session_id]
        while queue:
            place = queue.popleft()
            if not place.done():
                place.set_result(None)
                return
        del self._waiting[session_id]


def _take_out(queue: deque[asyncio.Future[None]], place: asyncio.Future[None]) -> None:
    with suppress(ValueError):  # whoever ended just now has passed over it, and taken it out
        queue.remove(place)


def busy(why: str) -> SessionBusyError:
    """The session has a turn running."""
    return SessionBusyError(
        f"session_id: {why}; wait for its end, or ask to wait (session_busy).",
        metadata={"field": "session_id"},
        retry_delay_s=RETRY_DELAY_S,
    )
