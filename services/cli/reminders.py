"""Inside supervisord: tells a process again that it is to stop, where the first time was lost.

A SIGTERM that comes between fork and exec runs supervisord's own handler in the child and is forgotten at the exec; the
process would start in full and be killed only at the end of its stop limit. Services and Envoy take a second SIGTERM as
the first.
"""

import os
import signal
from contextlib import suppress
from typing import Any

from supervisor.states import ProcessStates

INTERVAL_S = 2.0
"""From SIGTERM to the first reminder, and between two."""
COUNT = 3
"""Reminders of one process; after them it is left to its stop limit."""


class Reminders:
    """Sends the reminders of every process that is stopping, by a timer that runs only while there are any."""

    def __init__(self, supervisord: Any) -> None:
        self._supervisord = supervisord
        self._left: dict[
            int, int
        ] = {}  # by process id; holds no more than the processes that stop now

    def begin(self, event: Any) -> None:
        """A process is about to be sent its first SIGTERM (supervisord's ProcessStateStoppingEvent)."""
        # At its kill after the stop limit supervisord says so again; a killed process needs no reminder.
        self._left.setdefault(event.process.pid, COUNT)
        signal.setitimer(signal.ITIMER_REAL, INTERVAL_S, INTERVAL_S)  # no child inherits it

    def send(self, *_: object) -> None:
        """SIGALRM: remind whom is still there. Runs on supervisord's one thread, so that no id is reused meanwhile."""
        stopping = {
            process.pid
            for group in self._supervisord.process_groups.values()
            for process in group.processes.values()
            if process.state == ProcessStates.STOPPING
        }
        self._left = {pid: left for pid, left in self._left.items() if pid in stopping}
        for pid, left in self._left.items():
            if left:
                with suppress(ProcessLookupError):  # it ended just now
                    os.kill(pid, signal.SIGTERM)
        self._left = {pid: max(0, left - 1) for pid, left in self._left.items()}
        if not any(self._left.values()):
            signal.setitimer(signal.ITIMER_REAL, 0)
