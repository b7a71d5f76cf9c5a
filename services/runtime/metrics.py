"""The metrics that every process has; docs/metrics.md lists all of them, and a test compares.

One registry for each process, made by its Service: nothing is registered behind anybody's back. Labels have few values,
all known beforehand: never a request id, an owner, or anything that a client wrote.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector

from services.runtime.loop_lag import LoopLag
from services.runtime.metrics_server import MetricsServer

LAG_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 5)
CALL_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """What a process tells of itself; a service adds its own to `registry`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._server = MetricsServer(self.registry)
        ProcessCollector(registry=self.registry)
        self._info = Info("hotline_process", "Which process this is", registry=self.registry)
        self.calls = CallMetrics(self.registry)
        lags = Histogram(
            "hotline_event_loop_lag_seconds",
            "How much later than asked the event loop called back, looked at every 50 ms",
            registry=self.registry,
            buckets=LAG_BUCKETS_S,
        )
        self.loop_lag = LoopLag(lags.observe)
        window = "over about the last minute"
        Gauge(
            "hotline_event_loop_lag_max_seconds",
            f"Largest lag of the event loop {window}",
            registry=self.registry,
        ).set_function(self.loop_lag.max_s)
        Gauge(
            "hotline_event_loop_lag_p99_seconds",
            f"99th percentile of the event loop's lag {window}",
            registry=self.registry,
        ).set_function(self.loop_lag.p99_s)

    async def start(self, address: str) -> None:
        """Watch the running loop, and answer scrapes on this address (see MetricsServer); on none where it is empty.

        Raises OSError where the address is taken.
        """
        self.loop_lag.start()
        if address:
            await self._server.start(address)

    async def close(self) -> None:
        """Look and answer no more. Idempotent."""
        self.loop_lag.stop()
        await self._server.close()

    @property
    def port(self) -> int:
        """Where scrapes are answered; 0: nowhere."""
        return self._server.port

    def name(self, service: str, name: str) -> None:
        """Say which process this is."""
        self._info.info({"service": service, "name": name})


class CallMetrics:
    """Counts gRPC calls; an interceptors.CallObserver."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter(
            "hotline_grpc_requests",
            "Calls that ended, by their status code",
            ("service", "method", "code"),
            registry=registry,
        )
        self._running = Gauge(
            "hotline_grpc_requests_running",
            "Calls under way, streams included",
            ("service", "method"),
            registry=registry,
        )
        self._seconds = Histogram(
            "hotline_grpc_request_seconds",
            "From the beginning of a call to its end",
            ("service", "method"),
            registry=registry,
            buckets=CALL_BUCKETS_S,
        )
        self._errors = Counter(
            "hotline_errors",
            "Calls that ended with an error, by its reason",
            ("reason",),
            registry=registry,
        )

    def began(self, method: str) -> None:
        """A call of a method that the server has, by its full name."""
        self._running.labels(*_split(method)).inc()

    def ended(self, method: str, code: str, reason: str, elapsed_s: float) -> None:
        """It ended. `reason`: of the error table; or empty."""
        names = _split(method)
        self._running.labels(*names).dec()
        self._calls.labels(*names, code).inc()
        self._seconds.labels(*names).observe(elapsed_s)
        if reason:
            self._errors.labels(reason).inc()


def _split(method: str) -> tuple[str, str]:
    service, _, name = method.removeprefix("/").partition("/")
    return service, name
