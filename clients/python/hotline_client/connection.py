"""The connection to a server, which can be made anew."""

import ipaddress
from collections.abc import Sequence
from typing import Any

import grpc
from grpc import aio

from hotline_client.policy import NetworkPolicy

MAX_MESSAGE_BYTES = 40 * 1024 * 1024
"""As the server has it."""

Metadata = tuple[tuple[str, str], ...]


class Connection:
    """One channel at a time. After `renew` calls go over a fresh one; those on the old one come to their end.

    Args:
        address: `host:port` or `unix:/path`.
        api_key: sent with every call; None: none.
        tls: certificates of the system's authorities, or the given PEM; False: plain, which is for this machine.

    Raises ValueError for an API key that would travel in the clear to another machine.
    """

    def __init__(
        self, address: str, api_key: str | None, tls: bool | bytes, policy: NetworkPolicy
    ) -> None:
        if api_key and not tls and not _is_local(address):
            raise ValueError(
                f"an API key would go to {address} in the clear: pass tls=True, or the PEM of its authority"
            )
        self._address, self._tls, self._policy = address, tls, policy
        self._channel: aio.Channel | None = None
        self._old: list[aio.Channel] = []
        self.metadata: Metadata = (("authorization", f"Bearer {api_key}"),) if api_key else ()

    @property
    def channel(self) -> aio.Channel:
        """The present one; connects with its first call."""
        if self._channel is None:
            self._channel = self._open()
        return self._channel

    def _open(self) -> aio.Channel:
        options = _options(self._policy)
        if not self._tls:
            return aio.insecure_channel(self._address, options=options)
        root = self._tls if isinstance(self._tls, bytes) else None
        return aio.secure_channel(
            self._address, grpc.ssl_channel_credentials(root), options=options
        )

    async def renew(self, failed: aio.Channel) -> None:
        """Go on over a fresh channel, unless somebody has made one since `failed` failed."""
        if self._channel is not failed:
            return
        self._channel = None
        # Other calls may still run on it; it has to be closed by somebody some time.
        self._old.append(failed)
        while len(self._old) > 2:
            await self._old.pop(0).close()

    async def close(self) -> None:
        """Close all channels; calls that run end as cancelled. Idempotent."""
        channels = [*self._old, *([self._channel] if self._channel is not None else [])]
        self._old, self._channel = [], None
        for channel in channels:
            await channel.close()


def _options(policy: NetworkPolicy) -> Sequence[tuple[str, Any]]:
    return [
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.keepalive_time_ms", round(policy.ping_interval_s * 1000)),
        ("grpc.keepalive_timeout_ms", round(policy.ping_timeout_s * 1000)),
        ("grpc.keepalive_permit_without_calls", 0),  # a sleeping phone's radio may sleep too
        ("grpc.http2.max_pings_without_data", 0),  # 0: no limit
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", round(policy.connect_timeout_s * 1000)),
        ("grpc.max_reconnect_backoff_ms", 3_000),
        ("grpc.enable_retries", 0),  # this library knows what may be sent twice
        # A channel of the same address would otherwise share the connection that hangs.
        ("grpc.use_local_subchannel_pool", 1),
    ]


def _is_local(address: str) -> bool:
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
