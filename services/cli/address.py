"""Addresses as people write them: `host:port` and `unix:/path`. Imports nothing heavy: the parser of options uses it."""

import re

_HOST_AND_PORT = re.compile(r"(\[[0-9A-Za-z:.%]+\]|[^\s:/@\[\]]+):(\d{1,5})", re.ASCII)
LAST_PORT = 65535


def split(address: str) -> tuple[str, int] | None:
    """Host (IPv6 without its brackets) and port (0 to 65535) of `host:port`; None where it is something else."""
    found = _HOST_AND_PORT.fullmatch(address)
    if found is None or int(found[2]) > LAST_PORT:
        return None
    return found[1].strip("[]"), int(found[2])


def listening_address(address: str) -> str:
    """`address`, checked to be a `host:port` to listen on; port 0: any free one. Raises ValueError."""
    if split(address) is None:
        raise ValueError(
            f"{address!r} is not host:port, such as 127.0.0.1:8000 or [::1]:8000, "
            f"with a port of 0 (any free one) to {LAST_PORT}"
        )
    return address


def peer_address(address: str) -> str:
    """`address`, checked to be one to connect to: `host:port` or `unix:/path`. Raises ValueError."""
    if address.startswith("unix:/"):
        return address
    parts = split(address)
    if parts is None or parts[1] == 0:
        raise ValueError(
            f"{address!r} is neither host:port, such as 127.0.0.1:8000, nor unix:/path"
        )
    return address
