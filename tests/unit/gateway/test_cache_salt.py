"""The salt of an owner is his alone, whatever he is called."""

from hypothesis import given
from hypothesis import strategies as st

from services.gateway.cache_salt import owner_salt

CONTRACT_BYTES = 64
OWNERS = st.text(max_size=80)


@given(OWNERS, OWNERS)
def test_two_owners_have_two_salts_and_one_has_one(one, other):
    assert (owner_salt(one) == owner_salt(other)) is (one == other)


@given(OWNERS)
def test_a_salt_fits_the_contract_and_says_its_kind(owner):
    salt = owner_salt(owner)
    assert len(salt.encode()) <= CONTRACT_BYTES
    assert salt.startswith("owner.")
    assert salt.count(".") == 1


@given(OWNERS)
def test_an_owner_named_like_anothers_salt_gets_another_one(owner):
    assert owner_salt(owner_salt(owner)) != owner_salt(owner)
