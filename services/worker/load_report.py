"""Telling streams how busy the engine is: in their first message, then when it has changed, but not too often."""

import asyncio
from collections.abc import Callable

from services.worker.engine import Load

INTERVAL_S = 0.1
"""At most ten times a second."""


class LoadReport:
    """What one stream was told.

    Args:
        load: how busy the engine is now.
        clock: monotonic, in seconds.
        wake: called when there may be something to tell on a stream that is silent.
    """

    def __init__(
        self, load: Callable[[], Load], clock: Callable[[], float], wake: Callable[[], None]
    ) -> None:
        self._load, self._clock, self._wake = load, clock, wake
        self._told: Load | None = None
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def changed(self) -> None:
        """Look at the load one interval from now, when the engine has counted what is changing."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._look)

    def take(self) -> Load | None:
        """The load, where it is to be told in the message that is being made."""
        now_s = self._clock()
        if now_s < self._due_s:
            return None
        load = self._load()
        if load == self._told:
            return None
        self._told, self._due_s = load, now_s + INTERVAL_S
        return load

    def close(self) -> None:
        """Wake nobody any more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        self._wake()


class LoadReports:
    """The reports of all streams of one worker."""

    def __init__(self, load: Callable[[], Load], clock: Callable[[], float]) -> None:
        self._load, self._clock = load, clock
        self._reports: set[LoadReport] = set()

    def open(self, wake: Callable[[], None]) -> LoadReport:
        """A report for a stream that begins; `forget` it with the stream."""
        report = LoadReport(self._load, self._clock, wake)
        self._reports.add(report)
        return report

    def forget(self, report: LoadReport) -> None:
        """Its stream has ended."""
        report.close()
        self._reports.discard(report)

    def changed(self) -> None:
        """A generation begins or has ended, on whatever stream: all are to hear of it."""
        for report in self._reports:
            report.changed()
