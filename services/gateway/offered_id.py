"""The generation id that a call's metadata offers: REST clients have no other place for it."""

from collections.abc import Iterable
from typing import Any

GENERATION_ID_KEY, IDEMPOTENCY_KEY = "x-generation-id", "idempotency-key"


def offered_id(metadata: Iterable[Any] | None) -> str:
    """Of either header, the first one where they differ; empty where there is none. It is not checked."""
    found = {
        str(key): value
        for key, value in metadata or ()
        if key in (GENERATION_ID_KEY, IDEMPOTENCY_KEY) and isinstance(value, str)
    }
    return found.get(GENERATION_ID_KEY) or found.get(IDEMPOTENCY_KEY) or ""
