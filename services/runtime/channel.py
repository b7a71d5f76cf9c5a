"""One keep-alive and size profile for every gRPC server and channel of the project.

A misspelt option key is ignored silently by gRPC; tests/stack pings through a silent call to see them work.
"""

from collections.abc import Sequence

import grpc
from grpc import aio

MAX_MESSAGE_BYTES = 40 * 1024 * 1024
"""Largest message: a 32 MiB body (the edge's limit) and what wraps it."""

PING_INTERVAL_MS = 20_000
"""A channel pings after so long without traffic; below the 30 s after which mobile NATs forget."""

PING_TIMEOUT_MS = 10_000
"""A ping unanswered for so long closes the connection."""

_SIZES = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
]
_KEEP_ALIVE = [
    ("grpc.keepalive_time_ms", PING_INTERVAL_MS),
    ("grpc.keepalive_timeout_ms", PING_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),  # 0: no limit
]
CHANNEL_OPTIONS = [
    *_SIZES,
    *_KEEP_ALIVE,
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.enable_retries", 0),  # the gateway decides what may be sent twice
]
SERVER_OPTIONS = [
    *_SIZES,
    *_KEEP_ALIVE,
    # Clients ping every 10-30 s through a silent prefill: never answer with too_many_pings.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),  # 0: no limit
    # The edge lets 60 KiB of headers pass and says so; gRPC's own 8 to 16 KiB would refuse at random behind it.
    ("grpc.max_metadata_size", 64 * 1024),
    ("grpc.absolute_max_metadata_size", 128 * 1024),
    ("grpc.so_reuseport", 0),  # a port that is taken must be an error, not shared
    ("grpc.max_concurrent_streams", 4_096),
    # Calls that the event loop has not taken up yet. Above 1,000, gRPC's own value, it ends some at random as CANCELLED,
    # which tells clients nothing and which none tries again; admission refuses in words. The edge sends 8,192 at most.
    ("grpc.server.max_pending_requests", 16_384),
    ("grpc.server.max_pending_requests_hard_limit", 16_384),
]


def open_channel(address: str) -> aio.Channel:
    """A lazy channel to one of our services; it connects, and reconnects, by itself.

    Args:
        address: `host:port` on loopback, or `unix:/path`.
    """
    return aio.insecure_channel(address, options=CHANNEL_OPTIONS)


def create_server(interceptors: Sequence[aio.ServerInterceptor]) -> aio.Server:
    """A server with the shared profile; the caller adds ports and servicers."""
    return aio.server(
        interceptors=list(interceptors),
        options=SERVER_OPTIONS,
        compression=grpc.Compression.NoCompression,
    )
