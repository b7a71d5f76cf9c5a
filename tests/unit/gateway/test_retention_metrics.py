"""Readers that come back, and those that do not, are counted."""

from prometheus_client import CollectorRegistry

from services.gateway.kept_generations import KeptGenerations
from services.gateway.retention import RetentionLimits
from services.gateway.retention_metrics import RetentionMetrics


def test_each_act_is_counted_by_itself():
    registry = CollectorRegistry()
    metrics = RetentionMetrics(registry)
    kept = KeptGenerations(RetentionLimits())
    metrics.watch(kept)
    kept.kept_bytes = 70
    for count, act in enumerate(
        (
            metrics.resumed,
            metrics.joined,
            metrics.expired,
            metrics.detached,
            metrics.abandoned,
            metrics.too_slow,
        ),
        1,
    ):
        for _ in range(count):
            act()

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"hotline_gateway_{name}", labels)

    outcomes = [value("resumes_total", outcome=o) for o in ("resumed", "joined", "expired")]
    assert outcomes == [1, 2, 3]
    assert value("detached_generations_total") == 4
    assert value("abandoned_generations_total") == 5
    assert value("slow_readers_total") == 6
    assert (value("kept_bytes"), value("kept_generations")) == (70, 0)
