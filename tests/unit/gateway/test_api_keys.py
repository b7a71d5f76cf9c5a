"""Keys: their text, what is kept of them, and who is found by one."""

import hmac
import math
from datetime import UTC, datetime, timedelta

import pytest

from services.gateway import key_ring
from services.gateway.api_key import key_hash, new_key, public_id
from services.gateway.caller import Caller, Limits
from services.gateway.key_document import KeyDocument, StoredKey, StoredLimits
from services.gateway.key_ring import KeyRing

NOW = datetime(2026, 12, 1, tzinfo=UTC)


def stored(text: str, **fields: object) -> StoredKey:
    """What the file keeps of a key."""
    given: dict[str, object] = {
        "id": public_id(text),
        "name": f"name-{public_id(text)}",
        "owner": "acme",
        "hash": key_hash(text),
        "created": NOW,
    } | fields
    return StoredKey(**given)


def ring(*keys: StoredKey, now: datetime = NOW) -> KeyRing:
    made = KeyRing(lambda: now)
    made.take(KeyDocument(keys=keys))
    return made


def test_a_key_tells_its_public_id_and_two_are_never_alike():
    made = [new_key() for _ in range(100)]
    assert all(public_id(text) == key_id for key_id, text in made)
    assert len({text for _, text in made}) == 100
    assert {len(text) for _, text in made} == {len("hl-") + 12 + 1 + 43}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("EMPTY", id="placeholder"),
        pytest.param("sk-0123456789ab-" + "x" * 43, id="prefix"),
        pytest.param("hl-0123456789AB-" + "x" * 43, id="upper-case id"),
        pytest.param("hl-0123456789ab-" + "x" * 42, id="short"),
        pytest.param("hl-0123456789ab-" + "x" * 44, id="long"),
        pytest.param("hl-0123456789ab-" + "x" * 43 + "\n", id="newline"),
        pytest.param("hl-0123456789ab-" + "x" * 42 + "ä", id="not ASCII"),
        pytest.param("hl-٠123456789ab-" + "x" * 43, id="another alphabet's digit"),
    ],
)
def test_what_is_no_key_has_no_id_and_finds_nobody(text):
    assert public_id(text) is None
    assert ring().find(text) is None


def test_a_key_finds_its_owner_its_limits_and_its_models():
    key_id, text = new_key()
    limits = StoredLimits(max_concurrent=3, tokens_per_minute=100, first_priority=0, weight=2)
    found = ring(stored(text, limits=limits, models=("m", "n"))).find(text)
    assert found == Caller(
        "acme",
        Limits(3, 100, 100, math.inf, 0, 2),
        key_id,
        frozenset(("m", "n")),
    )


def test_a_key_without_limits_is_limited_by_nothing():
    _, text = new_key()
    found = ring(stored(text)).find(text)
    assert found is not None
    assert (found.limits, found.models) == (Limits(), None)


def test_a_bucket_holds_the_tokens_of_a_minute_unless_it_says_another_size():
    assert StoredLimits(tokens_per_minute=7).limits().burst_tokens == 7
    assert StoredLimits(tokens_per_minute=7, burst_tokens=50).limits().burst_tokens == 50


def test_the_id_alone_opens_nothing():
    key_id, text = new_key()
    _, other = new_key()
    forged = text[:16] + other[16:]
    assert public_id(forged) == key_id
    assert ring(stored(text)).find(forged) is None


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        pytest.param({"disabled": True}, False, id="revoked"),
        pytest.param({"expires": NOW}, False, id="expires now"),
        pytest.param({"expires": NOW - timedelta(days=1)}, False, id="expired"),
        pytest.param({"expires": NOW + timedelta(seconds=1)}, True, id="expires soon"),
    ],
)
def test_a_key_that_is_revoked_or_expired_is_none(fields, found):
    _, text = new_key()
    keys = ring(stored(text, **fields))
    assert (keys.find(text) is not None) is found
    assert keys.usable_count == int(found)


def test_a_key_expires_while_it_is_in_force():
    _, text = new_key()
    moments = [NOW, NOW + timedelta(hours=2)]
    keys = KeyRing(lambda: moments[0])
    keys.take(KeyDocument(keys=(stored(text, expires=NOW + timedelta(hours=1)),)))
    assert keys.find(text) is not None
    moments.pop(0)
    assert keys.find(text) is None


@pytest.mark.parametrize("known", [True, False])
def test_hashes_are_compared_in_constant_time_also_where_the_id_is_unknown(known, monkeypatch):
    compared = []

    def compare(one: str, other: str) -> bool:
        compared.append((len(one), len(other)))
        return hmac.compare_digest(one, other)

    _, text = new_key()
    keys = ring(stored(text)) if known else ring()
    monkeypatch.setattr(
        key_ring, "hmac", type("Spy", (), {"compare_digest": staticmethod(compare)})
    )
    assert (keys.find(text) is not None) is known
    assert compared == [(64, 64)]


def test_new_keys_take_the_place_of_the_old_ones_as_a_whole():
    _, old = new_key()
    _, new = new_key()
    keys = ring(stored(old))
    keys.take(KeyDocument(keys=(stored(new),)))
    assert keys.find(old) is None
    assert keys.find(new) is not None
