"""Receiving feature tensors: a header, its bytes in chunks, and so on; verified before anything is kept."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod

from services.runtime.digest import DIGEST_BYTES, feature_digest
from services.runtime.errors import InvalidArgumentError
from services.worker.engine import FeatureTensor, Grid
from services.worker.features import FeatureStore
from services.worker.limits import Limits
from services.worker.validation import grid_problem

MAX_CHUNK_BYTES = 1024 * 1024
MAX_TENSORS = 64
"""In one call."""
HASH_OFF_LOOP_BYTES = 256 * 1024
"""Tensors above this are hashed in a thread; below, the thread would cost more."""


@dataclass(frozen=True)
class Header:
    """FeatureHeader, not yet checked. `modality` and `data_type` are the contract's names."""

    digest: bytes
    modality: str
    data_type: str
    modality_number: int
    data_type_number: int
    """The numbers of the enums, which the digest covers."""
    shape: tuple[int, ...]
    grid: Grid
    size_bytes: int


async def receive(
    pieces: AsyncIterator[Header | bytes], store: FeatureStore, limits: Limits
) -> list[bytes]:
    """Store every tensor of a call; returns their digests in order.

    Nothing of a tensor is kept that is cut short, too long or not what its digest says; those before it stay.

    Raises:
        InvalidArgumentError: names the piece, the value and the limit.
        OverloadedError, RequestTooLargeError: no room.
    """
    digests: list[bytes] = []
    with ExitStack() as stack:
        upload: _Upload | None = None
        async for piece in pieces:
            if isinstance(piece, Header):
                if upload is not None:
                    upload.require_complete()
                if len(digests) >= MAX_TENSORS:
                    raise InvalidArgumentError(
                        "header",
                        f"{len(digests) + 1} tensors",
                        f"at most {MAX_TENSORS} in one call",
                    )
                _check(piece, limits)
                digests.append(piece.digest)
                upload = _Upload(piece, known=store.has(piece.digest))
                if not upload.known:
                    stack.enter_context(store.reserve(piece.size_bytes))
            elif upload is None:
                raise InvalidArgumentError("chunk", f"{len(piece)} bytes", "sent after a header")
            else:
                upload.append(piece)
                if upload.complete and not upload.known:
                    tensor = await upload.verified()
                    stack.close()  # its room, which `add` takes again
                    store.add(tensor)
        if upload is not None:
            upload.require_complete()
    return digests


def _check(header: Header, limits: Limits) -> None:
    geometry = limits.images
    if geometry is None or header.modality != "IMAGE":
        raise InvalidArgumentError("header.modality", header.modality, "MODALITY_IMAGE")
    if header.data_type != "UINT8":
        raise InvalidArgumentError("header.data_type", header.data_type, "DATA_TYPE_UINT8")
    if len(header.digest) != DIGEST_BYTES:
        raise InvalidArgumentError(
            "header.feature_digest", header.digest.hex(), f"{DIGEST_BYTES} bytes"
        )
    if problem := grid_problem(header.grid, geometry):
        raise InvalidArgumentError("header.grid", tuple(header.grid), problem)
    shape = (header.grid.patches, geometry.patch_bytes)
    if header.shape != shape:
        raise InvalidArgumentError("header.shape", header.shape, f"{shape}, as the grid says")
    if header.size_bytes != prod(shape):
        raise InvalidArgumentError(
            "header.size_bytes", header.size_bytes, f"{prod(shape)}, as the shape says"
        )


class _Upload:
    """One tensor on its way."""

    def __init__(self, header: Header, known: bool) -> None:
        self._header, self.known = header, known
        self._data = bytearray(0 if known else header.size_bytes)
        self._received_bytes = 0

    @property
    def complete(self) -> bool:
        return self._received_bytes == self._header.size_bytes

    def append(self, chunk: bytes) -> None:
        if not 0 < len(chunk) <= MAX_CHUNK_BYTES:
            raise InvalidArgumentError(
                "chunk", f"{len(chunk)} bytes", f"1 to {MAX_CHUNK_BYTES} bytes"
            )
        end = self._received_bytes + len(chunk)
        if end > self._header.size_bytes:
            raise InvalidArgumentError(
                "chunk", f"{end} bytes", f"{self._header.size_bytes} bytes, as the header says"
            )
        if not self.known:
            self._data[self._received_bytes : end] = chunk
        self._received_bytes = end

    def require_complete(self) -> None:
        # Bytes of a tensor that is here already need not be sent at all.
        if not self.complete and not (self.known and self._received_bytes == 0):
            raise InvalidArgumentError(
                "chunk",
                f"{self._received_bytes} bytes",
                f"{self._header.size_bytes} bytes, as the header says",
            )

    async def verified(self) -> FeatureTensor:
        """The tensor. Raises InvalidArgumentError where its digest is another than the header's."""
        header, data = self._header, memoryview(self._data)
        arguments = (header.modality_number, header.data_type_number, header.shape, header.grid)
        if data.nbytes > HASH_OFF_LOOP_BYTES:
            digest = await asyncio.to_thread(feature_digest, *arguments, data)
        else:
            digest = feature_digest(*arguments, data)
        if digest != header.digest:
            raise InvalidArgumentError(
                "header.feature_digest", header.digest.hex(), f"{digest.hex()}, as the bytes say"
            )
        return FeatureTensor(digest, header.grid, header.shape, data)
