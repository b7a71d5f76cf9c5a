"""Cancel by name: here, or on whatever worker another gateway has the generation running."""

from services.gateway.pool import Pool
from services.gateway.registry import Registry
from services.gateway.worker_id import worker_generation_id


class Cancellation:
    """Of generations of one owner at a time."""

    def __init__(self, pool: Pool, registry: Registry) -> None:
        self._pool, self._registry = pool, registry

    async def cancel(self, owner: str, generation_id: str) -> bool:
        """End a generation; whether it ran."""
        if self._registry.cancel(owner, generation_id):
            return True
        return await self._pool.abort(worker_generation_id(owner, generation_id))
