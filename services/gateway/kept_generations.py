"""The generations that can be joined, resumed and replayed, by owner and id."""

from collections import OrderedDict
from typing import TypeAlias

from services.gateway.retained import Retained
from services.gateway.retention import RetentionLimits
from services.runtime.errors import GenerationExpiredError, GenerationNotFoundError

MAX_EXPIRED = 16_384
"""Ids of which is known that they are not kept any more; of older ones nothing is."""

Key: TypeAlias = tuple[str, str]
"""Owner and generation id."""


class KeptGenerations:
    """Running ones, as many as there are seats; ended ones, within bounds."""

    def __init__(self, limits: RetentionLimits) -> None:
        self._limits = limits
        self._all: dict[Key, Retained] = {}
        self._ended: OrderedDict[Key, int] = OrderedDict()
        self._expired: OrderedDict[Key, None] = OrderedDict()
        self.kept_bytes = 0
        """Of those that have ended."""

    @property
    def ended_count(self) -> int:
        """Those that have ended."""
        return len(self._ended)

    def find(self, key: Key) -> Retained | None:
        """One that is here."""
        return self._all.get(key)

    def get(self, key: Key) -> Retained:
        """One that is here. Raises GenerationExpiredError, GenerationNotFoundError; also for one of another owner."""
        kept = self._all.get(key)
        if kept is not None:
            return kept
        if key in self._expired:
            raise GenerationExpiredError(
                f"generation_id: {key[1]!r} was here, but is not kept any more.",
                metadata={"field": "generation_id"},
            )
        raise GenerationNotFoundError(
            f"generation_id: no generation {key[1]!r} can be resumed here.",
            metadata={"field": "generation_id"},
        )

    def add(self, key: Key, kept: Retained) -> None:
        """One that begins."""
        self.forget(key)
        self._expired.pop(key, None)
        self._all[key] = kept

    def ended(self, key: Key) -> None:
        """One has ended, and is kept on; the oldest ones go where there is no room."""
        size_bytes = self._all[key].replay.size_bytes
        self._ended[key] = size_bytes
        self.kept_bytes += size_bytes
        limits = self._limits
        while self.kept_bytes > limits.max_kept_bytes or len(self._ended) > limits.max_kept_count:
            self.expire(next(iter(self._ended)))

    def expire(self, key: Key) -> None:
        """Drop one, and remember that it was here. Idempotent."""
        if self.forget(key):
            self._expired[key] = None
            if len(self._expired) > MAX_EXPIRED:
                self._expired.popitem(last=False)

    def forget(self, key: Key) -> bool:
        """Drop one as if it had never been; whether it was here."""
        kept = self._all.pop(key, None)
        if kept is None:
            return False
        kept.close()
        self.kept_bytes -= self._ended.pop(key, 0)
        return True

    def close(self) -> None:
        """Drop all."""
        for key in list(self._all):
            self.forget(key)
