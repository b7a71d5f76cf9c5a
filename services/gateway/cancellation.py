"""Cancel by name: here, at the gateway that has the generation, or on whatever worker another gateway has it running."""

from typing import Any

from services.gateway.peers import Peers
from services.gateway.pool import Pool
from services.gateway.registry import Registry
from services.gateway.worker_id import worker_generation_id


class Cancellation:
    """Of generations of one owner at a time."""

    def __init__(self, pool: Pool, registry: Registry, peers: Peers) -> None:
        self._pool, self._registry, self._peers = pool, registry, peers

    async def cancel(self, owner: str, generation_id: str, context: Any) -> bool:
        """End a generation; whether it ran."""
        if self._registry.cancel(owner, generation_id):
            return True
        peer = await self._peers.holder(owner, generation_id, context)
        if peer and await self._peers.cancel(peer, generation_id, context):
            return True
        return await self._pool.abort(worker_generation_id(owner, generation_id))
