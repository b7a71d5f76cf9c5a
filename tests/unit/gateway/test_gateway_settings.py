"""A gateway that nobody, or that anybody, could call is refused unless that is what was said."""

import pytest
from pydantic import ValidationError

from services.gateway.settings import GatewaySettings

BEHIND = {"tokenizers": {"t": "unix:/t"}, "workers": {"w": "unix:/w"}}


def test_neither_keys_nor_anonymous_callers_is_refused_with_what_to_do():
    with pytest.raises(ValidationError) as refused:
        GatewaySettings(**BEHIND)
    for words in ("keys_file", "hotline key add", "allow_anonymous"):
        assert words in str(refused.value)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"keys_file": "keys.json"}, id="keys"),
        pytest.param({"allow_anonymous": True}, id="anonymous"),
        pytest.param({"keys_file": "keys.json", "allow_anonymous": True}, id="both"),
    ],
)
def test_either_is_enough(fields):
    assert GatewaySettings(**BEHIND, **fields).admin_address == ""


@pytest.mark.parametrize("address", ["0.0.0.0:1", ":1", "10.0.0.1:1", "example.com:1", "[::]:1"])
def test_operators_answer_on_loopback_only(address):
    with pytest.raises(ValidationError, match="neither on loopback"):
        GatewaySettings(**BEHIND, allow_anonymous=True, admin_address=address)


@pytest.mark.parametrize("address", ["unix:/x", "127.0.0.1:0", "[::1]:5", "localhost:5"])
def test_or_on_a_socket(address):
    settings = GatewaySettings(**BEHIND, allow_anonymous=True, admin_address=address)
    assert settings.admin_address == address
