"""Metrics of sessions; docs/metrics.md lists them."""

from prometheus_client import CollectorRegistry, Counter


class SessionMetrics:
    """Counts what this gateway did with sessions."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._opened = Counter(
            "hotline_gateway_sessions_opened", "Sessions that were opened here", registry=registry
        )
        self._turns = Counter(
            "hotline_gateway_session_turns",
            "Turns that ended so that they can be part of the history; outcome is committed or dropped",
            ("outcome",),
            registry=registry,
        )

    def opened(self) -> None:
        """A session was opened."""
        self._opened.inc()

    def ended(self, committed: bool) -> None:
        """A turn ended."""
        self._turns.labels("committed" if committed else "dropped").inc()
