"""Who can reach an address that a process listens on."""

import ipaddress


def is_loopback(address: str) -> bool:
    """Whether `host:port` or `unix:/path` can be reached from this machine alone; False where that is not certain."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]").partition("%")[0]
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
