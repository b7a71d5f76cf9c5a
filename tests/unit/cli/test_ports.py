"""Ports that are tried before anything starts."""

import socket

import pytest

from services.cli.ports import PortError, free_port, free_ports


def test_a_port_that_somebody_has_is_refused_with_the_reason():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortError, match=rf"127\.0\.0\.1:{port}: Address already in use"):
            free_port("127.0.0.1", port)
    assert free_port("127.0.0.1", port) == port


def test_a_host_that_is_not_ours_is_refused():
    with pytest.raises(PortError, match=r"192\.0\.2\.1:0"):
        free_port("192.0.2.1", 0)


def test_free_ones_are_different():
    assert len({*free_ports("127.0.0.1", 20)}) == 20
