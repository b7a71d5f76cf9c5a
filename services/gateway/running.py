"""A generation under way: its task, and what it holds of the gateway."""

import asyncio

from services.gateway.generation import Generation
from services.gateway.seat import Seat
from services.runtime.errors import ServiceError

CANCEL_TIMEOUT_S = 5.0
"""Longest wait for a cancelled generation to free what it holds."""


class Running:
    """Begins to run at once."""

    def __init__(self, generation: Generation, seat: Seat) -> None:
        self._generation, self._seat = generation, seat
        name = f"generation {generation.request.generation_id}"
        self.task = asyncio.create_task(generation.run(), name=name)
        self.kept_bytes = 0
        """Of its request, held after the call that brought it."""

    def ahead(self) -> int:
        """Generations ahead of it in the queue."""
        return self._seat.ahead

    def cancel(self) -> bool:
        """End it with reason CANCELLED; whether it ran."""
        return self.task.cancel()

    def fail(self, error: ServiceError) -> None:
        """Tell its readers this end; see Generation.fail."""
        self._generation.fail(error)

    async def over(self) -> None:
        """Wait for its end, so long as a cancelled one may take, and leave the seat."""
        try:
            await asyncio.wait((self.task,), timeout=CANCEL_TIMEOUT_S)
        finally:
            self._seat.close()

    def close(self) -> None:
        """Leave the seat. Idempotent."""
        self._seat.close()
