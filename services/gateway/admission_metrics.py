"""The metrics of admission; docs/metrics.md lists them."""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge

from services.gateway.admission import Admission
from services.runtime.sampling_ranges import PRIORITIES

CLASSES = {
    "urgent": range(int(PRIORITIES.low), 0),
    "normal": range(1),
    "background": range(1, int(PRIORITIES.high) + 1),
}
"""The 201 priorities in three words."""


class AdmissionMetrics:
    """Counts refusals, and shows what is held."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._refusals = Counter(
            "hotline_gateway_refusals",
            "Requests that admission refused, by the limit that was reached",
            ("limit",),
            registry=registry,
        )

    def refused(self, limit: str) -> None:
        """See admission.Refused."""
        self._refusals.labels(limit).inc()

    def watch(self, admission: Admission) -> None:
        """Read it whenever somebody asks."""
        queue = Gauge(
            "hotline_gateway_queue_waiting",
            "Generations that wait for a place, by their priority: below, at or above 0",
            ("priority",),
            registry=self._registry,
        )
        for name, priorities in CLASSES.items():
            queue.labels(name).set_function(partial(admission.places.queue.count, priorities))
        self._gauge("held_bytes", "Bytes of the requests under way").set_function(
            lambda: admission.held_bytes
        )
        self._gauge(
            "held_tokens", "Tokens of prompts and of answers as long as they may get"
        ).set_function(lambda: admission.held_tokens)

    def _gauge(self, name: str, documentation: str) -> Gauge:
        return Gauge(f"hotline_gateway_{name}", documentation, registry=self._registry)
