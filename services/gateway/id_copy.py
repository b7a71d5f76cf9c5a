"""Copying token ids from one message to another without holding up the event loop."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

SLICE_IDS = 32 * 1024
"""Copied at once, in about a millisecond."""


class IdField(Protocol):
    """A repeated field of a protobuf message."""

    def extend(self, ids: Sequence[int], /) -> None:
        """Append ids."""


async def copy_ids(source: Sequence[int], target: IdField) -> None:
    """Append all ids, up to a million of them, letting other tasks run in between."""
    for start in range(0, len(source), SLICE_IDS):
        if start:
            await asyncio.sleep(0)
        target.extend(source[start : start + SLICE_IDS])
