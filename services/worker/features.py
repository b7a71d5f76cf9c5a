"""The bounded, content-addressed store of feature tensors."""

from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from services.runtime.errors import FeaturesMissingError, OverloadedError, RequestTooLargeError
from services.worker.engine import FeatureTensor


@dataclass
class _Entry:
    tensor: FeatureTensor
    expiry_s: float
    pins: int = 0


class FeatureStore:
    """Tensors by digest, the least recently used first to go.

    Bounded in bytes, uploads under way included. At the bound expired tensors go first, then the least recently used
    that no running generation has pinned; where that is not enough, OverloadedError. An expired tensor counts as
    absent at once and its bytes are given back at the next call.
    """

    def __init__(self, limit_bytes: int, ttl_s: float, clock: Callable[[], float]) -> None:
        self._limit_bytes, self._ttl_s, self._clock = limit_bytes, ttl_s, clock
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._stored_bytes = 0
        self._reserved_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of tensors held."""
        self._expire()
        return self._stored_bytes

    def has(self, digest: bytes) -> bool:
        """Whether a tensor is here; if so, its time starts again."""
        self._expire()
        entry = self._entries.get(digest)
        if entry is None:
            return False
        self._touch(entry)
        return True

    @contextmanager
    def reserve(self, size_bytes: int) -> Generator[None, None, None]:
        """Room for one tensor while it is being received; `add` it right after.

        Raises:
            RequestTooLargeError: it could never fit.
            OverloadedError: all the rest is in use.
        """
        if size_bytes > self._limit_bytes:
            raise RequestTooLargeError("header.size_bytes", size_bytes, self._limit_bytes)
        self._expire()
        self._make_room(size_bytes)
        self._reserved_bytes += size_bytes
        try:
            yield
        finally:
            self._reserved_bytes -= size_bytes

    def add(self, tensor: FeatureTensor) -> None:
        """Keep a verified tensor whose room was reserved until now. A tensor that is here already is only touched."""
        if not self.has(tensor.digest):
            self._entries[tensor.digest] = _Entry(tensor, self._clock() + self._ttl_s)
            self._stored_bytes += tensor.data.nbytes

    @contextmanager
    def pinned(self, digests: Sequence[bytes]) -> Generator[list[FeatureTensor], None, None]:
        """The tensors, kept until the block ends. Raises FeaturesMissingError with all that are not here."""
        self._expire()
        missing = [digest for digest in dict.fromkeys(digests) if digest not in self._entries]
        if missing:
            raise FeaturesMissingError(missing)
        entries = [self._entries[digest] for digest in digests]
        for entry in entries:
            entry.pins += 1
        try:
            yield [entry.tensor for entry in entries]
        finally:
            for entry in entries:
                entry.pins -= 1
                self._touch(entry)

    def _touch(self, entry: _Entry) -> None:
        entry.expiry_s = self._clock() + self._ttl_s
        self._entries.move_to_end(entry.tensor.digest)

    def _expire(self) -> None:
        # Rising expiry is the order of use; pinned ones at the front are passed over, and are few.
        now = self._clock()
        for entry in list(self._entries.values()):
            if entry.expiry_s > now:
                break
            if not entry.pins:
                self._drop(entry)

    def _make_room(self, size_bytes: int) -> None:
        for entry in list(self._entries.values()):
            if self._free_bytes() >= size_bytes:
                return
            if not entry.pins:
                self._drop(entry)
        if self._free_bytes() < size_bytes:
            raise OverloadedError(
                f"features: {size_bytes} bytes do not fit; of {self._limit_bytes} bytes the rest is in use "
                "by running generations and uploads.",
                retry_delay_s=1.0,
            )

    def _free_bytes(self) -> int:
        return self._limit_bytes - self._stored_bytes - self._reserved_bytes

    def _drop(self, entry: _Entry) -> None:
        del self._entries[entry.tensor.digest]
        self._stored_bytes -= entry.tensor.data.nbytes
