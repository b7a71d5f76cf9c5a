"""`python -m services.gateway`: one gateway process, configured by HOTLINE_GATEWAY_* variables."""

import sys

from services.gateway.app import Gateway
from services.gateway.settings import GatewaySettings
from services.runtime.lifecycle import run


def main() -> int:
    """Serve until a signal; returns the exit code, 2 where the settings are wrong."""
    return run("gateway", GatewaySettings, Gateway)


if __name__ == "__main__":
    sys.exit(main())
