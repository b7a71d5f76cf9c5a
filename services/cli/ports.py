"""Ports that a stack will listen on, tried before anything starts."""

import socket


class PortError(Exception):
    """Nobody can listen there; the message says where and why."""


def free_port(host: str, number: int) -> int:
    """The port, or any free one for 0, that somebody could listen on at this moment. Raises PortError.

    Args:
        host: a name or an address; an IPv6 address may stand in brackets.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # TIME_WAIT does not count
        try:
            probe.bind((host.strip("[]"), number))
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise PortError(f"cannot listen on {host}:{number}: {reason}") from None
        port: int = probe.getsockname()[1]
        return port


def free_ports(host: str, count: int) -> list[int]:
    """So many different free ones. Raises PortError."""
    found: list[int] = []
    while len(found) < count:
        port = free_port(host, 0)
        if port not in found:  # the kernel may offer one twice
            found.append(port)
    return found
