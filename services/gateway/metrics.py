"""The gateway's metrics; docs/metrics.md lists them, and a test compares.

A piece costs one call, one look at the clock and one `observe`: less than 2 us.
"""

from collections import deque
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from services.gateway.events import Event, Failed, Finished, Reasoning, Text, ToolCall
from services.gateway.observer import EventSink
from services.gateway.upstream import Upstream

_MODEL = ("model",)
GAP_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1, 5)
WAIT_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
TOTAL_BUCKETS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600)
REUSE_WINDOW = 256
"""Generations over which the reuse ratio is taken."""


class GatewayMetrics:
    """Counts generations; see observer.Observer.

    Args:
        clock: monotonic, in seconds.
    """

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float]) -> None:
        self._registry, self._clock = registry, clock
        self.reuse: dict[str, deque[tuple[int, int]]] = {}
        self._ends = Counter(
            "hotline_gateway_generations",
            "Generations that ended; outcome is finished or failed, reason a finish reason or an error's reason",
            ("model", "outcome", "reason"),
            registry=registry,
        )
        self.first = self._histogram(
            "time_to_first_token", "From the request to the first piece of text", WAIT_BUCKETS_S
        )
        self.gap = self._histogram(
            "inter_token", "Between one piece of text of a choice and the next", GAP_BUCKETS_S
        )
        self.queue = self._histogram(
            "queue", "Wait for a place, of generations that finished", WAIT_BUCKETS_S
        )
        self.total = self._histogram(
            "generation",
            "From the request to the end, of generations that finished",
            TOTAL_BUCKETS_S,
        )
        self._prompt = self._counter("prompt_tokens", "Tokens of prompts")
        self._completion = self._counter("completion_tokens", "Tokens that were generated")
        self._cached = self._counter("cached_tokens", "Tokens of prompts found in a KV cache")
        self._reuse_ratio = Gauge(
            "hotline_gateway_kv_reuse_ratio",
            f"Share of prompt tokens found in a KV cache, over the last {REUSE_WINDOW} generations",
            _MODEL,
            registry=registry,
        )
        self._moves = Counter(
            "hotline_gateway_moves",
            "Times that a generation went on on another worker, or on one that came back",
            registry=registry,
        )
        self._rebuilds = Counter(
            "hotline_gateway_text_rebuilds",
            "Texts that were made again on another detokeniser, from their ids",
            registry=registry,
        )
        self._serving = Gauge(
            "hotline_gateway_upstream_serving",
            "Whether a process behind the gateway serves: 1 or 0",
            ("upstream",),
            registry=registry,
        )

    def _histogram(self, name: str, documentation: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(
            f"hotline_gateway_{name}_seconds",
            documentation,
            _MODEL,
            registry=self._registry,
            buckets=buckets,
        )

    def _counter(self, name: str, documentation: str) -> Counter:
        return Counter(f"hotline_gateway_{name}", documentation, _MODEL, registry=self._registry)

    def watch_queue(self, running: Callable[[], int], waiting: Callable[[], int]) -> None:
        """Read these two whenever somebody asks."""
        for name, documentation, count in (
            ("running", "Generations that have a place", running),
            ("waiting", "Generations that wait for a place", waiting),
        ):
            gauge = Gauge(
                f"hotline_gateway_generations_{name}", documentation, registry=self._registry
            )
            gauge.set_function(count)

    def watch_upstream(self, upstream: Upstream) -> None:
        """Tell whether it serves whenever somebody asks."""
        self._serving.labels(upstream.name).set_function(lambda: float(upstream.serving))

    def text_rebuilt(self) -> None:
        """A text was made again."""
        self._rebuilds.inc()

    def moved(self) -> None:
        """A generation went on elsewhere."""
        self._moves.inc()

    def begin(self, model: str) -> EventSink:
        """See observer.Observer."""
        return _Record(self, model, self._clock).take

    def ended(self, model: str, event: Finished | Failed) -> None:
        """The terminal event of a generation."""
        if isinstance(event, Finished):
            outcome, reason = "finished", event.choices[0].reason.value
            timings = event.timings
            self.queue.labels(model).observe(timings.queue_s)
            self.total.labels(model).observe(
                timings.queue_s + timings.render_s + timings.prefill_s + timings.decode_s
            )
        else:
            outcome, reason = "failed", event.error.reason.value
        self._ends.labels(model, outcome, reason).inc()
        usage = event.usage
        self._prompt.labels(model).inc(usage.prompt_tokens)
        self._completion.labels(model).inc(usage.completion_tokens)
        self._cached.labels(model).inc(usage.cached_tokens)
        window = self.reuse.setdefault(model, deque(maxlen=REUSE_WINDOW))
        window.append((usage.cached_tokens, usage.prompt_tokens))
        prompts = sum(prompt for _, prompt in window)
        ratio = sum(cached for cached, _ in window) / prompts if prompts else 0.0
        self._reuse_ratio.labels(model).set(ratio)


class _Record:
    """What is measured of one generation while it runs."""

    def __init__(self, metrics: GatewayMetrics, model: str, clock: Callable[[], float]) -> None:
        self._metrics, self._model, self._clock = metrics, model, clock
        self._asked_s = clock()
        self._last_s: dict[int, float] = {}
        self._gaps = metrics.gap.labels(model)

    def take(self, event: Event) -> None:
        """See observer.EventSink."""
        if isinstance(event, Text | Reasoning | ToolCall):
            now_s = self._clock()
            last_s = self._last_s.get(event.choice_index)
            if last_s is not None:
                self._gaps.observe(now_s - last_s)
            elif not self._last_s:
                self._metrics.first.labels(self._model).observe(now_s - self._asked_s)
            self._last_s[event.choice_index] = now_s
        elif isinstance(event, Finished | Failed):
            self._metrics.ended(self._model, event)
