"""Session records as bytes: a version, then MessagePack. Nothing in it is ever run."""

import msgspec

from services.gateway.sessions.record import Session
from services.runtime.logs import get_logger

_log = get_logger()

VERSION = 1
"""Of the form of records. Fields that are added with a default need no new one."""
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Session)


def encoded(session: Session) -> bytes:
    """The record."""
    return bytes((VERSION,)) + _encoder.encode(session)


def decoded(data: bytes) -> Session | None:
    """What a record says; None, with a line in the log, for one of another version or a damaged one."""
    if data[:1] != bytes((VERSION,)):
        _log.error("session record of another version", version=data[0] if data else None)
        return None
    try:
        return _decoder.decode(memoryview(data)[1:])
    except msgspec.MsgspecError as error:
        _log.error("session record damaged", problem=str(error))
        return None
