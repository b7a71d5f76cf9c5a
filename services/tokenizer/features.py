"""Feature tensors and the store from which they are pushed to workers."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from services.runtime.digest import feature_digest
from services.runtime.errors import FeaturesMissingError
from services.tokenizer.pixels import Patches

MODALITY_IMAGE = 1
"""hotline.v1.Modality.MODALITY_IMAGE."""
DATA_TYPE_UINT8 = 1
"""hotline.v1.DataType.DATA_TYPE_UINT8."""


@dataclass(frozen=True)
class Feature:
    """One tensor and its names."""

    patches: Patches
    feature_digest: bytes
    """Of the tensor and its geometry, 32 bytes; see services/runtime/digest.py."""


@dataclass(frozen=True)
class Placement:
    """Where a feature stands in a prompt."""

    feature: Feature
    media_digest: bytes
    """SHA-256 of the encoded bytes that the client sent, 32 bytes."""
    offset: int
    """Index of its first placeholder token."""


def image_feature(patches: Patches) -> Feature:
    """A feature with its digest."""
    digest = feature_digest(
        MODALITY_IMAGE, DATA_TYPE_UINT8, patches.shape, patches.grid, patches.data
    )
    return Feature(patches, digest)


def media_digest(data: bytes) -> bytes:
    """SHA-256 of encoded bytes, which a phone can compute too."""
    return hashlib.sha256(data).digest()


class FeatureStore:
    """Features by digest, bounded in bytes and age. Belongs to one thread.

    At the bound the least recently used ones go; what is too old goes at the next call. A worker that asks for one
    that went is answered FEATURES_MISSING, and the gateway renders again.

    Args:
        capacity_bytes: tensor bytes kept.
        ttl_s: since the last `put` or `get` of a feature.
        clock: monotonic seconds.
    """

    def __init__(self, capacity_bytes: int, ttl_s: float, clock: Callable[[], float]) -> None:
        self._capacity_bytes, self._ttl_s, self._clock = capacity_bytes, ttl_s, clock
        self._features: OrderedDict[bytes, tuple[Feature, float]] = OrderedDict()
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Tensor bytes kept now."""
        self._drop_old()
        return self._size_bytes

    def put(self, feature: Feature) -> None:
        """Keep a feature, or keep it for longer. One larger than the whole store is not kept."""
        self._forget(feature.feature_digest)
        size_bytes = len(feature.patches.data)
        if size_bytes > self._capacity_bytes:
            return
        self._features[feature.feature_digest] = (feature, self._clock() + self._ttl_s)
        self._size_bytes += size_bytes
        self._drop_old()
        while self._size_bytes > self._capacity_bytes:
            self._forget(next(iter(self._features)))

    def get(self, digests: Sequence[bytes]) -> list[Feature]:
        """The features of these digests, in order, each kept for longer. Raises FeaturesMissingError naming all
        that are not here; then none is touched."""
        self._drop_old()
        missing = [digest for digest in digests if digest not in self._features]
        if missing:
            raise FeaturesMissingError(missing)
        found = [self._features[digest][0] for digest in digests]
        for feature in found:
            self.put(feature)
        return found

    def _drop_old(self) -> None:
        now = self._clock()
        while self._features:
            digest, (_, until) = next(iter(self._features.items()))
            if until > now:
                return
            self._forget(digest)

    def _forget(self, digest: bytes) -> None:
        gone = self._features.pop(digest, None)
        if gone is not None:
            self._size_bytes -= len(gone[0].patches.data)
