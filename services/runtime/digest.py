"""The digest of a feature tensor, computed by the tokenizer and verified by the worker."""

import hashlib
import struct
from collections.abc import Sequence

DIGEST_BYTES = 32
_TAG = b"hotline.v1.feature\0"


def feature_digest(
    modality: int,
    data_type: int,
    shape: Sequence[int],
    grid: tuple[int, int, int],
    data: bytes | memoryview,
) -> bytes:
    """SHA-256 of geometry and content, so that equal bytes of another shape are another feature.

    Hashed: the tag, then little-endian uint32: modality, data type (numbers of the proto enums), number of
    dimensions, each dimension, t, h, w; then the tensor's bytes.

    Args:
        shape: dimensions, outermost first, each below 2**32.
        grid: (t, h, w) in patches; zeros where the modality has none.
        data: the tensor, little-endian, C order.

    Returns:
        32 bytes.
    """
    head = (modality, data_type, len(shape), *shape, *grid)
    digest = hashlib.sha256(_TAG + struct.pack(f"<{len(head)}I", *head))
    digest.update(data)
    return digest.digest()
