"""Images of sessions, in memory."""

from collections import OrderedDict


class MemoryMedia:
    """See store.MediaStore.

    Args:
        max_bytes: of all images; the longest unused go first.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[tuple[bytes, bytes], bytes] = OrderedDict()
        self._by_session: dict[bytes, set[bytes]] = {}
        self.held_bytes = 0
        """Of all images."""

    async def put(self, session_id: bytes, digest: bytes, data: bytes) -> None:
        """See MediaStore."""
        if len(data) > self._max_bytes:
            return
        self._forget(session_id, digest)
        self._kept[session_id, digest] = data
        self._by_session.setdefault(session_id, set()).add(digest)
        self.held_bytes += len(data)
        while self.held_bytes > self._max_bytes:
            self._forget(*next(iter(self._kept)))

    async def get(self, session_id: bytes, digest: bytes) -> bytes | None:
        """See MediaStore."""
        data = self._kept.get((session_id, digest))
        if data is not None:
            self._kept.move_to_end((session_id, digest))
        return data

    async def drop(self, session_id: bytes) -> None:
        """See MediaStore."""
        self.drop_now(session_id)

    def drop_now(self, session_id: bytes) -> None:
        """The same, for those who cannot wait."""
        for digest in tuple(self._by_session.get(session_id, ())):
            self._forget(session_id, digest)

    async def close(self) -> None:
        """See MediaStore."""
        self._kept.clear()
        self._by_session.clear()
        self.held_bytes = 0

    def _forget(self, session_id: bytes, digest: bytes) -> None:
        data = self._kept.pop((session_id, digest), None)
        if data is None:
            return
        self.held_bytes -= len(data)
        digests = self._by_session[session_id]
        digests.discard(digest)
        if not digests:
            del self._by_session[session_id]
