"""`python -m services.gateway`: run one gateway, configured by HOTLINE_GATEWAY_* variables."""

import sys

from services.gateway.app import Gateway
from services.gateway.settings import GatewaySettings
from services.runtime.lifecycle import run


def main() -> int:
    """Run until a signal; returns the exit code."""
    settings = GatewaySettings.read()
    return run("gateway", Gateway(settings), settings)


if __name__ == "__main__":
    sys.exit(main())
