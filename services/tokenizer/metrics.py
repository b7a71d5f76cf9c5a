"""The tokenizer's metrics; docs/metrics.md lists them, and a test compares. Counting is thread-safe."""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from services.runtime.errors import InternalError, ServiceError
from services.tokenizer.renderer import Prompt

RENDER_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


class TokenizerMetrics:
    """Counts renders and ids."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._renders = Counter(
            "hotline_tokenizer_renders",
            "Renders that ended, by outcome: ok, or the reason of an error",
            ("outcome",),
            registry=registry,
        )
        self._seconds = Histogram(
            "hotline_tokenizer_render_seconds",
            "One render, without its wait for a thread; images says whether it decoded any",
            ("images",),
            registry=registry,
            buckets=RENDER_BUCKETS_S,
        )
        self._prompt_tokens = Counter(
            "hotline_tokenizer_prompt_tokens", "Token ids that were rendered", registry=registry
        )
        self._detokenised = Counter(
            "hotline_tokenizer_detokenised_tokens",
            "Token ids that came to be turned into text",
            registry=registry,
        )

    def rendered(self, render: Callable[[], Prompt]) -> Prompt:
        """Render, and note how that went."""
        start_s, outcome = time.perf_counter(), InternalError.reason.value
        try:
            prompt = render()
            outcome = "ok"
        except ServiceError as error:
            outcome = error.reason.value
            raise
        finally:
            self._renders.labels(outcome).inc()
        images = "yes" if prompt.placements else "no"
        self._seconds.labels(images).observe(time.perf_counter() - start_s)
        self._prompt_tokens.inc(len(prompt.token_ids))
        return prompt

    def detokenised(self, id_count: int) -> None:
        """So many ids came."""
        self._detokenised.inc(id_count)

    def watch(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        """A gauge `hotline_tokenizer_<name>` that is read on the loop whenever somebody asks."""
        gauge = Gauge(f"hotline_tokenizer_{name}", documentation, registry=self._registry)
        gauge.set_function(read)
