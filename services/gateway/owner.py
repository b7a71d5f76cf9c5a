"""Who is asking: the owner of generations, sessions and cache entries."""

from typing import Any

from grpc import aio

ANONYMOUS = "anonymous"


def owner_of(context: "aio.ServicerContext[Any, Any]") -> str:
    """The caller's owner name. There are no API keys in this version: everybody is the same owner."""
    return ANONYMOUS
