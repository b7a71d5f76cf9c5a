"""The feature digest covers content and geometry."""

import hashlib
import struct

from services.runtime.digest import DIGEST_BYTES, feature_digest

DATA = bytes(range(24))


def test_the_formula_is_the_documented_one():
    head = b"hotline.v1.feature\0" + struct.pack("<8I", 1, 1, 2, 4, 6, 1, 2, 2)
    wanted = hashlib.sha256(head + DATA).digest()
    assert feature_digest(1, 1, (4, 6), (1, 2, 2), DATA) == wanted
    assert len(wanted) == DIGEST_BYTES


def test_equal_bytes_of_another_geometry_are_another_feature():
    digests = {
        feature_digest(1, 1, (4, 6), (1, 2, 2), DATA),
        feature_digest(2, 1, (4, 6), (1, 2, 2), DATA),
        feature_digest(1, 2, (4, 6), (1, 2, 2), DATA),
        feature_digest(1, 1, (6, 4), (1, 2, 2), DATA),
        feature_digest(1, 1, (4, 6), (1, 1, 4), DATA),
        feature_digest(1, 1, (4, 6), (1, 2, 2), DATA[::-1]),
    }
    assert len(digests) == 6
