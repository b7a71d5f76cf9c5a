"""Who a call is by its authorization, in each of the three ways a gateway can be set up."""

from datetime import UTC, datetime

import pytest

from services.gateway.api_key import key_hash, new_key
from services.gateway.authentication import Authenticator
from services.gateway.caller import Caller
from services.gateway.key_document import KeyDocument, StoredKey
from services.gateway.key_ring import KeyRing
from services.runtime.errors import UnauthenticatedError

NOW = datetime(2026, 12, 1, tzinfo=UTC)
KEY_ID, KEY = new_key()
UNKNOWN = new_key()[1]


def keys() -> KeyRing:
    key = StoredKey(id=KEY_ID, name="n", owner="acme", hash=key_hash(KEY), created=NOW)
    ring = KeyRing(lambda: NOW)
    ring.take(KeyDocument(keys=(key,)))
    return ring


def who(authenticator: Authenticator, *sent: str) -> str:
    """The owner, or `refused`."""
    try:
        return authenticator.caller(sent).owner
    except UnauthenticatedError:
        return "refused"


SENT = [
    pytest.param((), "refused", "anonymous", id="nothing"),
    pytest.param(("Bearer EMPTY",), "refused", "anonymous", id="placeholder"),
    pytest.param(("Bearer ",), "refused", "refused", id="an empty token"),
    pytest.param((f"Bearer {KEY}",), "acme", "acme", id="the key"),
    pytest.param((f"bearer {KEY}",), "acme", "acme", id="the scheme's case"),
    pytest.param((f"Bearer  {KEY} ",), "acme", "acme", id="spaces"),
    pytest.param((f"Bearer {UNKNOWN}",), "refused", "refused", id="unknown"),
    pytest.param(("Bearer empty",), "refused", "refused", id="another word"),
    pytest.param((f"Bearer {KEY}x",), "refused", "refused", id="a longer key"),
    pytest.param((KEY,), "refused", "refused", id="no scheme"),
    pytest.param((f"Basic {KEY}",), "refused", "refused", id="another scheme"),
    pytest.param((f"Bearer {KEY}", f"Bearer {KEY}"), "refused", "refused", id="twice"),
    pytest.param((f"Bearer {UNKNOWN}, Bearer {KEY}",), "refused", "refused", id="joined"),
    pytest.param(("",), "refused", "refused", id="an empty header"),
    pytest.param(("Bearer " + "x" * 60_000,), "refused", "refused", id="huge"),
]


@pytest.mark.parametrize(("sent", "with_keys", "with_both"), SENT)
def test_a_key_is_asked_for_unless_anonymous_callers_are_allowed_beside_keys(
    sent, with_keys, with_both
):
    assert who(Authenticator(keys(), allow_anonymous=False), *sent) == with_keys
    assert who(Authenticator(keys(), allow_anonymous=True), *sent) == with_both


@pytest.mark.parametrize(("sent", "with_keys", "with_both"), SENT)
def test_without_keys_everybody_is_anonymous_whatever_was_sent(sent, with_keys, with_both):
    assert Authenticator(None, allow_anonymous=True).caller(sent) == Caller()


def test_without_keys_and_without_leave_nobody_comes_in():
    for sent in ((), ("Bearer EMPTY",), (f"Bearer {KEY}",)):
        assert who(Authenticator(None, allow_anonymous=False), *sent) == "refused"


def test_a_refusal_repeats_nothing_and_does_not_tell_unknown_from_revoked():
    told = set()
    ring = keys()
    revoked = next(iter(ring._keys.values()))[0].model_copy(update={"disabled": True})
    for text in (UNKNOWN, KEY, "nonsense", KEY[:-1] + "!"):
        ring.take(KeyDocument(keys=(revoked,)))
        with pytest.raises(UnauthenticatedError) as refused:
            Authenticator(ring, allow_anonymous=False).caller((f"Bearer {text}",))
        told.add(refused.value.message)
    (message,) = told
    assert KEY_ID not in message
