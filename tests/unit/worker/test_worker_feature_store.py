"""The bounded store of feature tensors, on a clock of our own."""

import pytest
from worker_calls import GRID

from services.runtime.errors import FeaturesMissingError, OverloadedError, RequestTooLargeError
from services.worker.engine import FeatureTensor
from services.worker.features import FeatureStore


class Clock:
    """Stands still."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> FeatureStore:
    """Room for three tensors of 10 bytes."""
    return FeatureStore(limit_bytes=30, ttl_s=10, clock=clock)


def tensor(name: bytes, size: int = 10) -> FeatureTensor:
    return FeatureTensor(name, GRID, (1, size), memoryview(bytes(size)))


def put(store: FeatureStore, *names: bytes) -> None:
    for name in names:
        with store.reserve(10):
            pass
        store.add(tensor(name))


def present(store: FeatureStore, names: bytes) -> bytes:
    """Which of these one-byte names are here, without touching them."""
    return bytes(name for name in names if bytes([name]) in store._entries)


def test_the_least_recently_used_goes_first(store: FeatureStore):
    put(store, b"a", b"b", b"c")
    assert store.has(b"a")
    put(store, b"d")
    assert present(store, b"abcd") == b"acd"


def test_a_pinned_tensor_stays_and_the_next_one_goes(store: FeatureStore):
    put(store, b"a", b"b", b"c")
    with store.pinned([b"a"]):
        put(store, b"d")
    assert present(store, b"abcd") == b"acd"


def test_use_by_a_generation_counts_until_its_end(store: FeatureStore):
    put(store, b"a", b"b", b"c")
    with store.pinned([b"a"]):
        store.has(b"b")
    put(store, b"d")
    assert present(store, b"abcd") == b"abd"


def test_where_all_is_pinned_an_upload_is_overloaded(store: FeatureStore):
    put(store, b"a", b"b", b"c")
    with store.pinned([b"a", b"b", b"c"]), pytest.raises(OverloadedError), store.reserve(1):
        pass
    with store.reserve(1):
        pass


def test_a_tensor_pinned_twice_needs_two_ends(store: FeatureStore):
    put(store, b"a")
    with store.pinned([b"a"]):
        with store.pinned([b"a"]):
            pass
        with pytest.raises(OverloadedError), store.reserve(30):
            pass


def test_room_under_way_counts(store: FeatureStore):
    with store.reserve(20), pytest.raises(OverloadedError), store.reserve(11):
        pass
    with store.reserve(30):
        pass


def test_what_could_never_fit_is_too_large(store: FeatureStore):
    with pytest.raises(RequestTooLargeError), store.reserve(31):
        pass


def test_all_missing_tensors_are_named_once_and_nothing_is_pinned(store: FeatureStore):
    put(store, b"a")
    with pytest.raises(FeaturesMissingError) as caught, store.pinned([b"a", b"x", b"y", b"x"]):
        pass
    assert caught.value.metadata["digests"] == "78,79"
    with store.reserve(30):
        assert present(store, b"a") == b""


def test_a_tensor_expires_when_nothing_used_it(store: FeatureStore, clock: Clock):
    put(store, b"a", b"b")
    clock.now = 9
    store.has(b"b")
    clock.now = 11
    assert store.held_bytes == 10
    assert not store.has(b"a")


def test_a_pinned_tensor_does_not_expire(store: FeatureStore, clock: Clock):
    put(store, b"a", b"b")
    with store.pinned([b"a"]):
        clock.now = 100
        assert store.held_bytes == 10
    clock.now = 109
    assert store.has(b"a")


def test_the_same_tensor_added_twice_counts_once(store: FeatureStore):
    put(store, b"a", b"a")
    assert store.held_bytes == 10


def test_the_same_tensor_twice_in_a_prompt_comes_twice(store: FeatureStore):
    put(store, b"a")
    with store.pinned([b"a", b"a"]) as tensors:
        assert [one.digest for one in tensors] == [b"a", b"a"]


def test_memory_is_bounded_over_many_unique_tensors(store: FeatureStore):
    for number in range(1000):
        put(store, number.to_bytes(2, "big"))
    assert store.held_bytes == 30
    assert len(store._entries) == 3
