"""The simulated KV cache: a fixed number of blocks, found again by the content of their prefix."""

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence


def block_name(parent: bytes, token_ids: Sequence[int], features: Iterable[bytes] = ()) -> bytes:
    """The name of a full block: a hash of everything before it, its tokens and the features in it.

    Args:
        parent: name of the block before; of the first one, `root_name`.
        features: digests of the features whose placeholders are in the block, in order.
    """
    digest = hashlib.blake2b(parent, digest_size=16)
    digest.update(array("Q", token_ids).tobytes())
    for feature in features:
        digest.update(feature)
    return digest.digest()


def root_name(cache_salt: str) -> bytes:
    """What stands before the first block: prefixes are shared only under the same salt."""
    return hashlib.blake2b(cache_salt.encode(), digest_size=16, person=b"salt").digest()


class BlockPool:
    """Blocks are used by sequences, or free. A full one has a name; a free one with a name can be found again.

    Bounded by `capacity`. Nameless free blocks are given out first, then the named ones that were free for longest,
    which are thereby forgotten.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._nameless_free = capacity
        self._users: dict[bytes, int] = {}
        self._idle: OrderedDict[bytes, None] = OrderedDict()

    @property
    def used(self) -> int:
        """Blocks that running sequences hold."""
        return self.capacity - self._nameless_free - len(self._idle)

    def hit(self, names: Sequence[bytes]) -> int:
        """How many of these blocks, from the first on, are here."""
        for index, name in enumerate(names):
            if name not in self._users and name not in self._idle:
                return index
        return len(names)

    def take(self, names: Sequence[bytes], others: int) -> bool:
        """Hold those blocks, which are here, and `others` nameless ones. False, and nothing held: too few are free."""
        idle = sum(name in self._idle for name in names)
        if others > self._nameless_free + len(self._idle) - idle:
            return False
        for name in names:
            self._users[name] = self._users.get(name, 0) + 1
            self._idle.pop(name, None)
        forgotten = max(0, others - self._nameless_free)
        self._nameless_free -= others - forgotten
        for _ in range(forgotten):
            self._idle.popitem(last=False)
        return True

    def give_name(self, name: bytes) -> bool:
        """Name a nameless block that is held. False: another block has this content; it stays nameless."""
        if name in self._users or name in self._idle:
            return False
        self._users[name] = 1
        return True

    def release(self, names: Sequence[bytes], nameless: int) -> None:
        """Hold these no longer. The end of a prefix is forgotten before its beginning."""
        for name in reversed(names):
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name]
                self._idle[name] = None
        self._nameless_free += nameless


class EncoderCache:
    """Images whose encoding is still held, least recently used first to go; bounded in placeholder tokens.

    An image larger than the bound is held alone.
    """

    def __init__(self, limit_tokens: int) -> None:
        self._limit_tokens, self._tokens = limit_tokens, 0
        self._entries: OrderedDict[tuple[str, bytes], int] = OrderedDict()

    def see(self, cache_salt: str, digest: bytes, tokens: int) -> bool:
        """Whether the image is held; it is from now on."""
        key = (cache_salt, digest)
        if key in self._entries:
            self._entries.move_to_end(key)
            return True
        while self._entries and self._tokens + tokens > self._limit_tokens:
            self._tokens -= self._entries.popitem(last=False)[1]
        self._entries[key] = tokens
        self._tokens += tokens
        return False
