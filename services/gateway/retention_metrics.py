"""Metrics of readers that come back, and of those that do not; docs/metrics.md lists them."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from services.gateway.kept_generations import KeptGenerations


class RetentionMetrics:
    """See retention.RetentionObserver."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._readers = Counter(
            "hotline_gateway_resumes",
            "Readers that came to a generation that was there already; outcome is resumed, joined or expired",
            ("outcome",),
            registry=registry,
        )
        self._left = Counter(
            "hotline_gateway_detached_generations",
            "Times that the last reader of a running generation went and it ran on",
            registry=registry,
        )
        self._abandoned = Counter(
            "hotline_gateway_abandoned_generations",
            "Generations that were cancelled because nobody came back in time",
            registry=registry,
        )
        self._slow = Counter(
            "hotline_gateway_slow_readers",
            "Generations that were cancelled because too much waited to be read",
            registry=registry,
        )

    def watch(self, kept: KeptGenerations) -> None:
        """Read it whenever somebody asks."""
        for name, documentation, value in (
            ("generations", "Ended generations that can be replayed", lambda: kept.ended_count),
            ("bytes", "What ended generations that can be replayed take", lambda: kept.kept_bytes),
        ):
            gauge = Gauge(f"hotline_gateway_kept_{name}", documentation, registry=self._registry)
            gauge.set_function(value)

    def resumed(self) -> None:
        """See RetentionObserver."""
        self._readers.labels("resumed").inc()

    def joined(self) -> None:
        """See RetentionObserver."""
        self._readers.labels("joined").inc()

    def expired(self) -> None:
        """See RetentionObserver."""
        self._readers.labels("expired").inc()

    def detached(self) -> None:
        """See RetentionObserver."""
        self._left.inc()

    def abandoned(self) -> None:
        """See RetentionObserver."""
        self._abandoned.inc()

    def too_slow(self) -> None:
        """See RetentionObserver."""
        self._slow.inc()
