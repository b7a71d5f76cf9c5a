"""How fast a client wants its events: so many credits, an event for each."""

import asyncio

from services.runtime.errors import DeadlineExceededError, InvalidArgumentError, ServiceError

MAX_CREDITS_AT_ONCE, MAX_CREDITS = 65_536, 1_048_576
"""In one message; unspent in all."""


class Pace:
    """The credits of one stream.

    Args:
        patience_s: longest wait for a credit.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._credits = 0
        self._is_free = False
        self._failure: ServiceError | None = None
        self._changed = asyncio.Event()

    def add(self, count: int) -> None:
        """More of them. Raises InvalidArgumentError."""
        if not 1 <= count <= MAX_CREDITS_AT_ONCE:
            raise InvalidArgumentError("credits", count, f"1 to {MAX_CREDITS_AT_ONCE}")
        if self._credits + count > MAX_CREDITS:
            limit = f"at most {MAX_CREDITS} that are not spent"
            raise InvalidArgumentError("credits", self._credits + count, limit)
        self._credits += count
        self._changed.set()

    def lift(self) -> None:
        """Events need no credits any more."""
        self._is_free = True
        self._changed.set()

    def fail(self, error: ServiceError) -> None:
        """Whoever spends hears this."""
        self._failure = error
        self._changed.set()

    async def spend(self, count: int = 1) -> None:
        """Wait until the next event may go. Raises what `fail` was told, DeadlineExceededError."""
        try:
            async with asyncio.timeout(self._patience_s):
                while not self._may_go(count):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise DeadlineExceededError(
                f"credits: none came within {self._patience_s:g} s."
            ) from None
        self._credits -= 0 if self._is_free else count

    def _may_go(self, count: int) -> bool:
        if self._failure is not None:
            raise self._failure
        return self._is_free or self._credits >= count
