"""Which addresses only this machine can reach."""

import pytest

from services.runtime.loopback import is_loopback


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:8000", "127.9.9.9:1", "[::1]:8000", "localhost:1", "unix:/tmp/x", "[::1%lo]:1"],
)
def test_loopback_is_known(address):
    assert is_loopback(address)


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0:8000", "[::]:8000", ":8000", "192.168.0.1:1", "[fe80::1]:1"),
        *("example.com:80", "localhost.example.com:80", "127.0.0.1.example.com:80", "8000", ""),
    ],
)
def test_what_is_not_certain_is_not_loopback(address):
    assert not is_loopback(address)
