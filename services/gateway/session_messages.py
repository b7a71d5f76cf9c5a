"""Messages of a session between hotline.v1 and what is kept: images go by their digests, their bytes to the media store."""

import asyncio
import binascii
import hashlib
from base64 import b64decode
from collections.abc import Collection, Sequence

from hotline.v1 import conversation_pb2

from services.gateway.sessions.record import StoredMessage
from services.gateway.sessions.store import MediaStore
from services.runtime.errors import InvalidMediaError

THREAD_BYTES = 64 * 1024
"""Images above this are decoded and hashed in a thread: a megabyte takes some milliseconds."""


async def stored(
    messages: Sequence[conversation_pb2.Message], session_id: bytes, media: MediaStore
) -> tuple[StoredMessage, ...]:
    """Messages as they are kept; their images go to the media store, which may refuse some for their size.

    Raises InvalidMediaError naming the part, for a data URL that is none.
    """
    return tuple(
        [
            await _stored(message, f"messages[{index}]", session_id, media)
            for index, message in enumerate(messages)
        ]
    )


async def _stored(
    message: conversation_pb2.Message, path: str, session_id: bytes, media: MediaStore
) -> StoredMessage:
    is_system = message.role == conversation_pb2.ROLE_SYSTEM
    if not any(part.HasField("image") for part in message.parts.parts):
        return StoredMessage(message.SerializeToString(), (), is_system)
    kept = conversation_pb2.Message(role=message.role)
    digests: list[bytes] = []
    for index, part in enumerate(message.parts.parts):
        if not part.HasField("image"):
            kept.parts.parts.append(part)
            continue
        digest = part.image.media_digest
        if not digest:
            digest, data = await _digest(part.image, f"{path}.content[{index}]")
            await media.put(session_id, digest, data)
        kept.parts.parts.add().image.media_digest = digest
        digests.append(digest)
    return StoredMessage(kept.SerializeToString(), tuple(digests), is_system)


async def _digest(image: conversation_pb2.ImagePart, field: str) -> tuple[bytes, bytes]:
    if len(image.data) + len(image.url) < THREAD_BYTES:
        return _read(image, field)
    return await asyncio.to_thread(_read, image, field)


def _read(image: conversation_pb2.ImagePart, field: str) -> tuple[bytes, bytes]:
    """SHA-256 of the encoded image, and its bytes."""
    data = image.data
    if image.url:
        head, comma, body = image.url.partition(",")
        try:
            data = (
                b64decode(body, validate=True)
                if head.lower().endswith(";base64") and comma
                else b""
            )
        except binascii.Error:
            data = b""
    if not data:
        raise InvalidMediaError(field, "this is neither image bytes nor a base64 data URL")
    return hashlib.sha256(data).digest(), data


async def restored(
    messages: Sequence[StoredMessage],
    shown: Collection[bytes],
    session_id: bytes,
    media: MediaStore,
) -> tuple[list[conversation_pb2.Message], set[bytes]]:
    """Messages for a renderer: with the images of these digests, without all others; and the digests whose bytes are gone.

    An image that is not shown leaves no trace, as when a phone agent drops the screenshot of a turn before.
    """
    result: list[conversation_pb2.Message] = []
    gone: set[bytes] = set()
    for each in messages:
        message = conversation_pb2.Message.FromString(each.data)
        if each.media:
            gone |= await _fill(message, shown, session_id, media)
        result.append(message)
    return result, gone


async def _fill(
    message: conversation_pb2.Message,
    shown: Collection[bytes],
    session_id: bytes,
    media: MediaStore,
) -> set[bytes]:
    parts: list[conversation_pb2.Part] = []
    gone: set[bytes] = set()
    for part in message.parts.parts:
        if part.HasField("image"):
            digest = part.image.media_digest
            if digest not in shown:
                continue
            data = await media.get(session_id, digest)
            if data is None:
                gone.add(digest)
                continue
            part.image.data = data
        parts.append(part)
    # A new list: taking parts out of a repeated field moves the ones behind.
    filled = conversation_pb2.PartList(parts=parts)
    message.parts.CopyFrom(filled)
    return gone


async def with_bytes(
    messages: Sequence[conversation_pb2.Message],
    known: Collection[bytes],
    session_id: bytes,
    media: MediaStore,
) -> Sequence[conversation_pb2.Message]:
    """New messages with the bytes of the images that they name by digest.

    Args:
        known: digests of the images that came in this session.

    Raises InvalidMediaError naming the part, where an image did not come in this session or is no longer kept.
    """
    result: list[conversation_pb2.Message] = []
    for index, message in enumerate(messages):
        if any(part.image.media_digest for part in message.parts.parts):
            copy = conversation_pb2.Message()
            copy.CopyFrom(message)
            message = copy
            for place, part in enumerate(message.parts.parts):
                digest = part.image.media_digest
                if not digest:
                    continue
                data = await media.get(session_id, digest) if digest in known else None
                if data is None:
                    raise InvalidMediaError(
                        f"messages[{index}].content[{place}].image.media_digest",
                        f"no image with the SHA-256 {digest.hex()[:64]} is kept in this session; send its bytes",
                    )
                part.image.data = data
        result.append(message)
    return result
