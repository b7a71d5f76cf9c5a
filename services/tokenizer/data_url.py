"""Images that came as URLs: data URLs are read, everything else is refused."""

import binascii
import re

from services.runtime.errors import InvalidMediaError, RequestTooLargeError

_HEAD = re.compile(
    r"data:image/[a-z0-9.+-]+(?:;[a-z0-9_.+-]+=[^;,]*)*;base64,", re.IGNORECASE | re.ASCII
)
_SLICE_CHARACTERS = 256 * 1024
"""Decoded at once, in multiples of 4; between slices other threads get their turn."""


def read_data_url(url: str, field: str, limit_bytes: int) -> bytes:
    """The bytes in a `data:image/...;base64,...` URL.

    Args:
        field: the part's path in the request, for errors.
        limit_bytes: most bytes that it may hold.

    Raises:
        InvalidMediaError: another scheme, no comma, no base64, or bad base64.
        RequestTooLargeError: more bytes than the limit.
    """
    if url[:5].lower() != "data:":
        scheme = url.partition(":")[0] if ":" in url[:32] else ""
        shown = f"URLs of scheme {scheme[:16]!r} are" if scheme else "this is"
        raise InvalidMediaError(
            field,
            f"{shown} not accepted: the server fetches nothing; send the image as a "
            "data:image/...;base64,... URL, or as bytes over gRPC",
        )
    comma = url.find(",", 0, 512)
    if comma < 0:
        raise InvalidMediaError(field, "the data URL has no comma after its media type")
    if not _HEAD.fullmatch(url, 0, comma + 1):
        raise InvalidMediaError(field, "the data URL must begin with data:image/...;base64,")
    size_bytes = (len(url) - comma - 1) * 3 // 4
    if size_bytes > limit_bytes + 2:
        raise RequestTooLargeError(field, size_bytes, limit_bytes)
    return _decode(url, comma + 1, field)


def _decode(url: str, start: int, field: str) -> bytes:
    pieces: list[bytes] = []
    try:
        for begin in range(start, len(url), _SLICE_CHARACTERS):
            piece = url[begin : begin + _SLICE_CHARACTERS]
            pieces.append(binascii.a2b_base64(piece, strict_mode=True))
    except ValueError as error:  # binascii.Error, or characters outside ASCII
        raise InvalidMediaError(field, "the base64 of the data URL cannot be read") from error
    data, character_count = b"".join(pieces), len(url) - start
    padding_count = url.endswith("=") + url.endswith("==")
    if character_count % 4 or len(data) != character_count // 4 * 3 - padding_count:
        raise InvalidMediaError(field, "the base64 of the data URL is wrongly padded")
    return data
