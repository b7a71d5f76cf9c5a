"""The image of `hotline chat`, checked before anything is sent."""

from pathlib import Path

LIMIT_BYTES = 20 * 1024 * 1024
"""The tokenizer's default limit of one image."""
_BEGINNINGS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"BM")


def read_screenshot(path: Path) -> bytes:
    """The file's bytes. Raises ValueError naming the file: it cannot be read, is empty, too large or no image."""
    try:
        with path.open("rb") as file:
            data = file.read(LIMIT_BYTES + 1)  # a device has no end
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    if not data:
        raise ValueError(f"{path}: the file is empty")
    if len(data) > LIMIT_BYTES:
        raise ValueError(f"{path}: larger than {LIMIT_BYTES // 2**20} MiB, the limit of an image")
    webp = data[:4] == b"RIFF" and data[8:12] == b"WEBP"
    if not webp and not data.startswith(_BEGINNINGS):
        raise ValueError(f"{path}: not an image in PNG, JPEG, WebP, GIF or BMP")
    return data
