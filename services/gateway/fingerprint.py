"""What makes two requests the same: a digest of what they ask for."""

import hashlib
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_UNIMPORTANT = frozenset({"generation_id", "disconnect", "heartbeat_interval_ms"})
"""Which generation it is, and how its reader is treated: another try may say otherwise."""


def fingerprint(request: Message) -> bytes:
    """SHA-256 of a native request, without what a second try may change. Some 2 ms for each MiB."""
    digest = hashlib.sha256()
    for field, value in request.ListFields():
        if field.name not in _UNIMPORTANT:
            for data in _values(field, value):
                digest.update(f"{field.number}:{len(data)}:".encode())
                digest.update(data)
    return digest.digest()


def body_fingerprint(route: str, body: bytes) -> bytes:
    """SHA-256 of a REST request, byte for byte."""
    return hashlib.sha256(route.encode() + b"\0" + body).digest()


def _values(field: FieldDescriptor, value: Any) -> list[bytes]:
    values = value if field.is_repeated else [value]
    if field.message_type is None:
        return [repr(one).encode() for one in values]
    return [one.SerializeToString(deterministic=True) for one in values]
