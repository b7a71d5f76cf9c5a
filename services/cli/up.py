"""`hotline up`: starts a whole stack, watches it, and stops it without leaving a process behind."""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from services.cli import stack_file
from services.cli.configuration import (
    Configuration,
    ConfigurationError,
    find,
    load,
    with_model_path,
)
from services.cli.keys_check import check_keys
from services.cli.ports import PortError, free_port
from services.cli.processes import ProcessPlan, plan
from services.cli.progress import Progress, indented, open_progress
from services.cli.readiness import until_chain_answers, watch
from services.cli.reload import Reload
from services.cli.supervision import PRIVATE_PREFIX, Change, Supervisor, tail
from services.cli.terminal import Terminal

READY_LINE = "Model service is ready! Endpoint: /v1/chat/completions"
_WORDS = {"STARTING": "starting", "STOPPING": "stopping", "STOPPED": "stopped"}
_ENDS = ("BACKOFF", "EXITED", "FATAL")


class StackError(Exception):
    """The stack cannot go on; the message says why, with the end of the log that tells more."""


class Stack:
    """One running stack and what is known about it."""

    def __init__(
        self,
        configuration: Configuration,
        plans: Sequence[ProcessPlan],
        folder: Path,
        progress: Progress,
    ) -> None:
        self._configuration, self._folder, self._progress = configuration, folder, progress
        self._plans = {plan.name: plan for plan in plans}
        self._supervisor: Supervisor | None = None
        self._serving: set[str] = set()
        self._was_ready = False
        self._stopping = False

    async def run(self, stop: asyncio.Event) -> None:
        """Start everything and keep it running until `stop` is set; then, or on an error, stop it all.

        Raises:
            StackError: a process could not start, was given up, or the stack was not ready in time.
        """
        self._supervisor = supervisor = await Supervisor.start(
            [*self._plans.values()], self._folder
        )
        changes = asyncio.ensure_future(self._follow_changes(supervisor))
        ready = asyncio.ensure_future(self._follow_edge())
        wanted = asyncio.ensure_future(stop.wait())
        watches = [
            asyncio.ensure_future(self._follow_health(plan))
            for plan in self._plans.values()
            if plan.role != "edge"
        ]
        try:
            await _first_end({changes, wanted, *watches}, ready)
        finally:
            self._stopping = True
            self._progress.stopping()
            others = [ready, wanted, *watches]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await self._end(supervisor, changes)

    async def _follow_edge(self) -> None:
        """Say when the stack is ready, and again whenever an edge that ended is back. Ends only by failing."""
        await self._until_ready()
        async with aclosing(watch(self._configuration.edge.address)) as states:
            async for serving in states:
                if serving:
                    self._progress.change("edge", "ready")

    async def _until_ready(self) -> None:
        limit_s = self._configuration.start_timeout_s
        address = self._configuration.edge.address
        try:
            async with asyncio.timeout(limit_s):
                await until_chain_answers(address)
        except TimeoutError:
            late = [name for name in self._plans if name not in self._serving and name != "edge"]
            blamed = late[0] if late else "edge"
            raise StackError(
                self._with_log(f"not ready after {limit_s:g} s; waiting for {blamed}", blamed)
            ) from None
        except OSError as error:
            raise StackError(f"the edge on {address} does not answer: {error}") from None
        self._was_ready = True
        self._progress.change("edge", "ready")
        self._announce()

    def _announce(self) -> None:
        address, model = self._configuration.edge.address, self._configuration.model
        also = f" (also {', '.join(model.aliases)})" if model.aliases else ""
        engine = str(self._configuration.worker.settings.get("engine", "vllm"))
        if engine == "sim":
            engine += " (a simulator: its words mean nothing)"
        lines = [
            "",
            f"  REST    http://{address}/v1",
            f"  gRPC    {address}",
            f"  model   {model.name}{also}",
            f"  engine  {engine}",
            f"  keys    {self._keys()}",
            f"  logs    {self._folder} (a clean stop removes it)",
            "",
            READY_LINE,
        ]
        for line in lines:
            self._progress.line(line)

    def _keys(self) -> str:
        gateway = self._configuration.gateway
        anonymous = gateway.settings.get("allow_anonymous") is True
        if gateway.keys_file is None:
            return "none are asked for"
        return f"{gateway.keys_file}{' (or none, or EMPTY)' if anonymous else ''}"

    async def _follow_health(self, plan: ProcessPlan) -> None:
        async with aclosing(watch(plan.address)) as states:
            async for serving in states:
                if serving:
                    self._serving.add(plan.name)
                    self._progress.change(plan.name, "ready")
                else:
                    self._serving.discard(plan.name)
                    if serving is False and not self._stopping:
                        self._progress.change(plan.name, "loading")

    async def _follow_changes(self, supervisor: Supervisor) -> None:
        async with aclosing(supervisor.changes()) as changes:
            async for change in changes:
                self._take(change)
        if not self._stopping:
            raise StackError("the process supervisor ended:\n" + indented(supervisor.own_errors()))

    def _take(self, change: Change) -> None:
        if change.state in _WORDS:
            self._progress.change(change.process, _WORDS[change.state])
        elif change.state in _ENDS:
            self._serving.discard(change.process)
            how = "" if change.exit_code in (None, -1) else f"exit code {change.exit_code}"
            self._progress.change(change.process, "ended", how)
            if not self._stopping and (change.state == "FATAL" or not self._was_ready):
                what = "keeps ending; given up" if self._was_ready else "ended while starting"
                raise StackError(self._with_log(f"{change.process} {what}", change.process))

    def _with_log(self, message: str, process: str) -> str:
        file = self._plans[process].log_file(self._folder)
        return f"{message}. The end of {file}:\n{indented(tail(file))}"

    async def _end(self, supervisor: Supervisor, changes: "asyncio.Future[None]") -> None:
        """Stop all, in order; a stop that takes too long, or is hastened, kills what is left."""
        supervisor.ask_to_stop()
        if changes.done():  # it failed: go on reading, or supervisord would wait for a reader
            changes = asyncio.ensure_future(self._follow_changes(supervisor))
        try:
            await asyncio.wait_for(changes, supervisor.stop_limit_s)
        except TimeoutError:
            supervisor.kill_all()
        await supervisor.wait()

    def hasten(self) -> None:
        """Kill what still runs, where the stop has begun."""
        if self._stopping and self._supervisor is not None:
            self._supervisor.kill_all()


async def _first_end(enders: set["asyncio.Future[Any]"], ready: "asyncio.Future[None]") -> None:
    """Wait for what ends the stack, and raise what went wrong; `ready` ends it only by failing."""
    waiting = {*enders, ready}
    while True:
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if done & enders:
            return
        waiting -= done


async def _run(configuration: Configuration, progress: Progress) -> int:
    folder = Path(tempfile.mkdtemp(prefix=stack_file.FOLDER_PREFIX))  # 0700
    failed = True
    try:
        plans = plan(configuration, folder)
        _check_metrics_ports(plans)
        stack = Stack(configuration, plans, folder, progress)
        stop = asyncio.Event()

        def interrupt() -> None:
            if stop.is_set():
                stack.hasten()
            else:
                stop.set()
                progress.line("stopping; once more kills what still runs, and cuts its streams")

        terminal, reload = Terminal(), Reload(folder, progress.line)

        def hang_up() -> None:
            if stop.is_set():
                return  # a terminal that closes may say so twice; nobody is in a hurry
            if terminal.is_lost():
                terminal.let_go()
                interrupt()
            else:
                reload.begin()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, interrupt)
        loop.add_signal_handler(signal.SIGHUP, hang_up)
        stack_file.write(folder, plans)  # for `hotline status`
        await stack.run(stop)
        failed = False
    finally:
        progress.close()
        if failed and os.listdir(folder):  # empty where nothing was started
            progress.line(f"the logs stay in {folder}")
        else:
            shutil.rmtree(folder)
    return 0


def main(name: str, port: int | None, model_path: Path | None = None) -> int:
    """Run a stack until a signal.

    Args:
        name: a configuration file, or the name of one in deploy/config.
        port: replaces the edge's port; 0: any free one.
        model_path: replaces the model's folder.

    Returns:
        0 after a signal, 1 where the stack could not start or could not go on.
    """
    progress = open_progress(sys.stdout)
    try:
        for variable in sorted(os.environ):
            if variable.startswith(PRIVATE_PREFIX):
                progress.line(f"{variable} is ignored: the configuration file says it all")
                del os.environ[variable]
        configuration = _with_port(with_model_path(load(find(name)), model_path), port)
        check_keys(configuration)
        return asyncio.run(_run(configuration, progress))
    except (ConfigurationError, StackError) as error:
        progress.close()  # before the error, which the spinner would write over
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        progress.close()  # a spinner hides the cursor


def _with_port(configuration: Configuration, port: int | None) -> Configuration:
    """The configuration with a port that is free now. Raises StackError where it is taken."""
    host, _, configured = configuration.edge.address.rpartition(":")
    try:
        number = free_port(host, int(configured) if port is None else port)
    except PortError as error:
        raise StackError(f"{error}; --port or edge.address chooses another") from None
    edge = configuration.edge.model_copy(update={"address": f"{host}:{number}"})
    return configuration.model_copy(update={"edge": edge})


def _check_metrics_ports(plans: Sequence[ProcessPlan]) -> None:
    """Raises StackError where a process could not listen for Prometheus."""
    for process in plans:
        host, _, port = process.metrics_address.rpartition(":")
        try:
            if port:
                free_port(host, int(port))
        except PortError as error:
            message = f"{error}, the metrics of {process.name}; metrics.first_port chooses others"
            raise StackError(message) from None
