"""The worker's metrics; docs/metrics.md lists them, and a test compares."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.runtime.error_table import Reason
from services.worker.engine import Finished, Step, Tokens
from services.worker.status import Status


class WorkerMetrics:
    """Counts generations and their tokens; see observer.StepObserver."""

    def __init__(self, registry: CollectorRegistry, status: Callable[[], Status]) -> None:
        self._ends = Counter(
            "hotline_worker_generations",
            "Choices that finished, and generations that failed once admitted; reason says why",
            ("outcome", "reason"),
            registry=registry,
        )
        self._prompt = Counter(
            "hotline_worker_prompt_tokens",
            "Tokens of prompts that the engine read",
            registry=registry,
        )
        self._cached = Counter(
            "hotline_worker_cached_tokens", "Those of them found in the KV cache", registry=registry
        )
        self._generated = Counter(
            "hotline_worker_generated_tokens", "Tokens that the engine sampled", registry=registry
        )
        registry.register(_StatusCollector(status))

    def step(self, step: Step) -> None:
        """See observer.StepObserver."""
        if isinstance(step, Tokens):
            self._generated.inc(len(step.token_ids))
        elif isinstance(step, Finished):
            self._ends.labels("finished", step.reason.value).inc()
        else:
            self._prompt.inc(step.prompt_tokens)
            self._cached.inc(step.cached_tokens)

    def failed(self, reason: Reason) -> None:
        """See observer.StepObserver."""
        self._ends.labels("failed", reason.value).inc()


class _StatusCollector(Collector):
    """What the worker says of itself, asked once for each scrape."""

    def __init__(self, status: Callable[[], Status]) -> None:
        self._status = status

    def collect(self) -> list[Metric]:
        """See Collector."""
        status = self._status()
        load = status.load
        gauges: tuple[tuple[str, str, float], ...] = (
            ("running", "Generations that the engine runs", load.running),
            ("waiting", "Generations that wait in the engine", load.waiting),
            ("kv_usage_ratio", "Share of the KV cache in use, 0 to 1", load.kv_usage_ratio),
            ("feature_store_bytes", "Feature tensors that are kept", status.feature_bytes),
            ("serving_seconds", "Since the engine was ready; 0 while it is not", status.serving_s),
        )
        restarts = CounterMetricFamily(
            "hotline_worker_engine_restarts",
            "Times that the engine ended by itself and was brought back",
            value=status.engine_restart_count,
        )
        return [
            *(GaugeMetricFamily(f"hotline_worker_{n}", text, value=v) for n, text, v in gauges),
            restarts,
        ]

    def describe(self) -> list[Metric]:
        """Nothing is asked while the worker is being built."""
        return []
