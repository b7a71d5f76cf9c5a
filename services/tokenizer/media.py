"""Encoded images to pixels: what is accepted, and what the model is shown of it.

Accepted, by their first bytes and whatever name they were given: PNG, JPEG, WebP, GIF, BMP. The EXIF orientation is
applied; transparency is composited on white; 16-bit samples keep their upper 8 bits; CMYK becomes RGB; of an
animation the first frame is taken. Size and aspect ratio are checked in the header, before anything is decoded.
"""

import io
import struct
import warnings
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from services.runtime.errors import InvalidMediaError, RequestTooLargeError

MAX_ASPECT_RATIO = 200
"""Longer side to shorter side; the image processor's own bound."""

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"BM", "BMP"),
)
_DECODING_ERRORS = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    NotImplementedError,
    struct.error,
    zlib.error,
)
"""What Pillow's decoders raise on broken input, its fuzzers' findings included."""

_EXIF_ORIENTATION = 274
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

warnings.filterwarnings(
    "ignore", module=r"PIL\."
)  # about metadata that clients sent; not for our log
Image.MAX_IMAGE_PIXELS = None  # ours, checked right after the header, is configurable and an error


@dataclass(frozen=True)
class MediaLimits:
    """What one image may be."""

    max_bytes: int
    """Encoded size."""
    max_pixels: int
    """Width x height."""


def decode_image(data: bytes, field: str, limits: MediaLimits) -> NDArray[np.uint8]:
    """The pixels of an encoded image.

    Args:
        data: the file's bytes.
        field: the part's path in the request, for errors.

    Returns:
        uint8 RGB, shape (height, width, 3), C order.

    Raises:
        InvalidMediaError: not such an image, broken, or beyond a limit.
        RequestTooLargeError: more bytes than the limit.
    """
    if len(data) > limits.max_bytes:
        raise RequestTooLargeError(field, len(data), limits.max_bytes)
    kind = _kind(data)
    if kind is None:
        raise InvalidMediaError(field, "this is no PNG, JPEG, WebP, GIF or BMP image")
    try:
        with Image.open(io.BytesIO(data), formats=(kind,)) as image:
            _check_size(image.width, image.height, field, limits)
            image.load()
            upright = _upright(image)
            return np.ascontiguousarray(np.asarray(_rgb(upright), dtype=np.uint8))
    except UnidentifiedImageError as error:
        raise InvalidMediaError(field, f"the {kind} image has no readable header") from error
    except _DECODING_ERRORS as error:
        raise InvalidMediaError(field, f"the {kind} image is broken or cut short") from error


def _kind(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    return next((kind for magic, kind in _MAGIC if data.startswith(magic)), None)


def _check_size(width: int, height: int, field: str, limits: MediaLimits) -> None:
    if width < 1 or height < 1:
        raise InvalidMediaError(field, f"the image is {width} x {height} pixels")
    if width * height > limits.max_pixels:
        raise InvalidMediaError(
            field,
            f"the image is {width} x {height} pixels, more than the limit of {limits.max_pixels} in all",
        )
    if max(width, height) > MAX_ASPECT_RATIO * min(width, height):
        raise InvalidMediaError(
            field,
            f"the image is {width} x {height} pixels; one side may be at most "
            f"{MAX_ASPECT_RATIO} times the other",
        )


def _upright(image: Image.Image) -> Image.Image:
    try:
        orientation = image.getexif().get(_EXIF_ORIENTATION)
    except (*_DECODING_ERRORS, Warning):
        return image  # metadata that cannot be read says nothing
    turn = _TURNS.get(orientation) if isinstance(orientation, int) else None
    return image if turn is None else image.transpose(turn)


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        return _from_16_bit(image)
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.has_transparency_data:
        layered = image if image.mode == "RGBA" else image.convert("RGBA")
        white = Image.new("RGB", layered.size, "white")
        white.paste(layered, mask=layered)
        return white
    return image.convert("RGB")


def _from_16_bit(image: Image.Image) -> Image.Image:
    samples: NDArray[Any] = np.asarray(image)
    grey = np.clip(samples >> 8, 0, 255).astype(np.uint8)
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        grey[samples == transparent] = 255
    return Image.fromarray(grey).convert("RGB")
