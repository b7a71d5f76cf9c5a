"""The life of a service process: STARTING, WARMING, SERVING (and back to WARMING), DRAINING, STOPPED.

The port opens before warm-up, so that health can say NOT_SERVING instead of nothing. Draining says NOT_SERVING for a
notice period first: peers' health checks must see it before calls are refused.
"""

import asyncio
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import TypeVar

from grpc import aio

from services.runtime.built_in import add_built_in
from services.runtime.channel import create_server
from services.runtime.errors import UnavailableError
from services.runtime.health import HealthServicer
from services.runtime.interceptors import ErrorInterceptor
from services.runtime.logs import configure, get_logger
from services.runtime.metrics import Metrics
from services.runtime.parent import die_with_parent
from services.runtime.settings import ServiceSettings, explain
from services.runtime.start import StartRefusedError

_log = get_logger()
SettingsT = TypeVar("SettingsT", bound=ServiceSettings)


class State(StrEnum):
    """Where a service process is in its life."""

    STARTING = "STARTING"
    WARMING = "WARMING"
    SERVING = "SERVING"
    DRAINING = "DRAINING"
    STOPPED = "STOPPED"


class Service(ABC):
    """What a process serves. The constructor is cheap; loading happens in `warm`."""

    interceptors: Sequence[aio.ServerInterceptor] = ()
    """Inside the error interceptor, outermost first."""
    steady_names: frozenset[str] = frozenset()
    """Services whose health follows the process alone, not `Process.set_ready`."""
    for_clients: bool = False
    """Whether clients reach its address: channelz, which tells of everybody's connections, is then not there."""
    reloads: bool = False
    """Whether SIGHUP calls `reload`; elsewhere it ends the process, as it always did."""

    def __init__(self) -> None:
        self.process: Process | None = None
        self.metrics = Metrics()

    @abstractmethod
    def register(self, server: aio.Server) -> Sequence[str]:
        """Add the servicers; returns their full names, for health and reflection."""

    @abstractmethod
    async def warm(self) -> None:
        """Load and warm up everything that a first request would pay for. Raises to end the process."""

    def reload(self) -> None:
        """Begin to read again what can change while the process runs; only where `reloads`. Never raises."""
        return

    async def drain(self) -> None:
        """End background work, with calls still running. Idempotent."""
        return

    @abstractmethod
    async def close(self) -> None:
        """Free everything; no call is running any more. Idempotent; called whatever failed before."""

    @property
    def state(self) -> State:
        """The state of the process that serves this; SERVING where there is none (tests)."""
        return self.process.state if self.process else State.SERVING

    def own(self, task: "asyncio.Task[None]") -> None:
        """End the process where this background task fails: nobody else would hear of it."""

        def ended(task: "asyncio.Task[None]") -> None:
            error = None if task.cancelled() else task.exception()
            if error is not None and self.process is not None:
                self.process.fail(error)

        task.add_done_callback(ended)

    def require_serving(self) -> None:
        """Raises UnavailableError unless requests are welcome."""
        if self.state in (State.STARTING, State.WARMING):
            raise UnavailableError("This process is still warming up.", retry_delay_s=1.0)
        if self.state is State.STOPPED:
            raise UnavailableError("This process has stopped.", retry_delay_s=1.0)


class Process:
    """One server with one service and what every process has besides, through its life."""

    def __init__(self, service: Service, settings: ServiceSettings) -> None:
        self._service, self._settings = service, settings
        self._health = HealthServicer()
        self._names: list[str] = []
        self._ready = True
        self.state = State.STARTING
        self.port = 0
        self.failed = asyncio.Event()
        self.failure: BaseException | None = None
        service.process = self

    async def start(self) -> None:
        """Open the port (NOT_SERVING), warm up, serve. Raises RuntimeError where the address is taken."""
        self._server = create_server(
            [ErrorInterceptor(self._service.metrics.calls), *self._service.interceptors]
        )
        self._names = ["", *self._service.register(self._server)]
        with_channelz = self._settings.channelz and not self._service.for_clients
        add_built_in(self._server, self._names[1:], self._health, with_channelz)
        await self._enter(State.STARTING)
        self.port = self._server.add_insecure_port(self._settings.address)
        await self._server.start()
        await self._service.metrics.start(self._settings.metrics_address)
        await self._enter(State.WARMING)
        await self._service.warm()
        await self._enter(State.SERVING)

    @asynccontextmanager
    async def warming(self) -> AsyncGenerator[None, None]:
        """WARMING again while the block runs, then SERVING: what the service keeps resident is being brought back.

        A stop that begins meanwhile goes first: the process stays in the state that it has reached.
        """
        if self.state is State.SERVING:
            await self._enter(State.WARMING)
        yield
        if self.state is State.WARMING:
            await self._enter(State.SERVING)

    @property
    def metrics_port(self) -> int:
        """Where the metrics are answered; 0: nowhere."""
        return self._service.metrics.port

    def reload_at(self, number: signal.Signals) -> None:
        """Let a signal reload the service, where it reloads."""
        if self._service.reloads:
            asyncio.get_running_loop().add_signal_handler(number, self._service.reload)

    def fail(self, error: BaseException) -> None:
        """End the process with exit code 1, drained as far as it can be: it cannot go on. Idempotent."""
        if self.failure is None:
            self.failure = error
            self.failed.set()

    async def set_ready(self, ready: bool) -> None:
        """Say SERVING or NOT_SERVING while serving, as the service's own upstreams come and go."""
        if ready != self._ready:
            self._ready = ready
            _log.info("ready" if ready else "not ready")
            await self._publish()

    async def stop(self) -> None:
        """Drain and stop, within notice + grace; idempotent."""
        if self.state is State.STOPPED:
            return
        was_serving = self.state is State.SERVING
        await self._enter(State.DRAINING)
        try:
            if was_serving:
                await asyncio.sleep(
                    self._settings.drain_notice_s
                )  # peers' health checks see it meanwhile
            await self._service.drain()
            await self._health.end_watches()  # they would hold the stop for its whole grace
            await self._server.stop(self._settings.drain_grace_s if was_serving else 0)
        finally:
            await self._service.close()
            await self._service.metrics.close()
            await self._enter(State.STOPPED)

    async def _enter(self, state: State) -> None:
        self.state = state
        _log.info("state", state=state.value, address=self._settings.address, port=self.port)
        await self._publish()

    async def _publish(self) -> None:
        for name in self._names:
            ready = self._ready or name in self._service.steady_names
            serving = self.state is State.SERVING and ready
            await self._health.set(name, serving)


async def _until_signal(process: Process) -> None:
    """Start, wait for SIGTERM, SIGINT (also during warm-up) or a failure, stop. A second signal changes nothing."""
    wanted = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, wanted.set)
    process.reload_at(signal.SIGHUP)
    starting = asyncio.ensure_future(process.start())
    ends = [asyncio.ensure_future(event.wait()) for event in (wanted, process.failed)]
    try:
        await asyncio.wait((starting, *ends), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting  # raises what ended the start
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        else:
            starting.cancel()
            await asyncio.wait((starting,))
    finally:
        for end in ends:
            end.cancel()
        await process.stop()
    if process.failure is not None:
        raise process.failure


def run(
    service_name: str, settings_class: type[SettingsT], build: Callable[[SettingsT], Service]
) -> int:
    """Read the settings and run a service until a signal ends it; the body of every `main`.

    Args:
        service_name: `gateway`, `tokenizer` or `worker`.
        settings_class: where the settings come from.
        build: makes the service; a ValueError says what is wrong with what the settings name.

    Returns:
        The exit code: 0 after a signal, 1 where the service failed, 2 where the settings are wrong, or wrong for this machine.
    """
    import uvloop

    try:
        settings = settings_class.read()
    except ValueError as error:
        sys.stderr.write(explain(settings_class, error))
        return 2
    if settings.exit_with_parent:
        die_with_parent()
    try:
        service = build(settings)
    except ValueError as error:
        sys.stderr.write(f"{service_name}: {error}\n")
        return 2
    configure(
        settings.log_format,
        settings.log_level,
        service=service_name,
        name=settings.name or service_name,
    )
    service.metrics.name(service_name, settings.name or service_name)
    try:
        uvloop.run(_until_signal(Process(service, settings)))
    except StartRefusedError as error:
        sys.stderr.write("".join(f"{service_name}: {line}\n" for line in error.lines))
        return 2
    # The top of the main task: log it where operators look, and tell the supervisor.
    except Exception:  # noqa: BLE001
        _log.exception("ended by an error")
        return 1
    return 0
