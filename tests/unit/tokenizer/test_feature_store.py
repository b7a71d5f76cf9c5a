import pytest

from services.runtime.errors import FeaturesMissingError
from services.tokenizer.features import Feature, FeatureStore, image_feature, media_digest
from services.tokenizer.pixels import Patches


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> FeatureStore:
    return FeatureStore(capacity_bytes=30, ttl_s=10, clock=clock)


def feature(value: int, size_bytes: int = 10) -> Feature:
    return image_feature(Patches(bytes([value]) * size_bytes, (1, size_bytes), (1, 1, 1), 1))


def test_features_come_back_in_the_order_asked_for(store: FeatureStore) -> None:
    one, two = feature(1), feature(2)
    store.put(one)
    store.put(two)
    assert store.get([two.feature_digest, one.feature_digest]) == [two, one]
    assert store.size_bytes == 20


def test_the_same_feature_counts_once(store: FeatureStore) -> None:
    store.put(feature(1))
    store.put(feature(1))
    assert store.size_bytes == 10


def test_at_the_bound_the_least_recently_used_goes(store: FeatureStore) -> None:
    one, two, three, four = map(feature, range(4))
    for each in (one, two, three):
        store.put(each)
    store.get([one.feature_digest])
    store.put(four)
    assert store.size_bytes == 30
    store.get([one.feature_digest, three.feature_digest, four.feature_digest])
    with pytest.raises(FeaturesMissingError):
        store.get([two.feature_digest])


def test_case_43_many_unique_features_never_take_more_than_the_bound(store: FeatureStore) -> None:
    for value in range(10_000):
        store.put(image_feature(Patches(value.to_bytes(10, "big"), (1, 10), (1, 1, 1), 1)))
        assert store.size_bytes <= 30


def test_a_feature_larger_than_the_store_is_not_kept_and_drives_none_out(
    store: FeatureStore,
) -> None:
    store.put(feature(1))
    store.put(feature(2, size_bytes=31))
    assert store.size_bytes == 10


def test_what_is_too_old_goes_and_use_keeps_it(store: FeatureStore, clock: Clock) -> None:
    one, two = feature(1), feature(2)
    store.put(one)
    store.put(two)
    clock.now_s = 9
    store.get([one.feature_digest])
    clock.now_s = 18
    assert store.size_bytes == 10
    store.get([one.feature_digest])
    clock.now_s = 28
    assert store.size_bytes == 0


def test_every_missing_digest_is_named(store: FeatureStore) -> None:
    store.put(feature(1))
    missing = [feature(2).feature_digest, feature(3).feature_digest]
    with pytest.raises(FeaturesMissingError) as caught:
        store.get([missing[0], feature(1).feature_digest, missing[1]])
    assert caught.value.metadata["digests"] == ",".join(digest.hex() for digest in missing)


def test_a_media_digest_is_the_sha_256_of_the_bytes() -> None:
    assert media_digest(b"abc").hex().startswith("ba7816bf8f01cfea")
