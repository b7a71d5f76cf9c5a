"""A plug-in of supervisord: tells `hotline up`, on standard output, what becomes of the processes.

One JSON object a line: {"process": name, "state": supervisord's word, "exit_code": number or null}.
It counts starts for `hotline status`.
It also ties supervisord's life to that of `up`, kills everything at once on SIGUSR1, the second Ctrl-C, and reminds
processes that are to stop.
"""

import json
import os
import signal
import sys
from collections import Counter
from typing import Any, TextIO

from supervisor import events
from supervisor.states import getProcessStateDescription

from services.cli.reminders import Reminders
from services.runtime.parent import die_with_parent

KILL_ALL = signal.SIGUSR1
"""Tells a supervisord that is stopping to kill what it still runs."""


class Announcements:
    """Its public methods are remote ones, on supervisord's own socket."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._starts: Counter[str] = Counter()

    def _count_start(self, event: Any) -> None:
        self._starts[event.process.config.name] += 1

    def _announce(self, event: Any) -> None:
        process = event.process
        line = {
            "process": process.config.name,
            "state": getProcessStateDescription(process.state),
            "exit_code": process.exitstatus,
        }
        try:
            print(json.dumps(line), file=self._output, flush=True)
        except BrokenPipeError:
            # `up` was killed. SIGTERM is on its way; an exception here would end supervisord before its processes.
            self._output = open(os.devnull, "w")  # noqa: SIM115 (until the process ends)

    def start_counts(self) -> dict[str, int]:
        """How often each process was started.

        @return struct  name -> count
        """
        return dict(self._starts)


def create(supervisord: Any, parent_pid: str) -> Announcements:
    """Called by supervisord (`supervisor.rpcinterface_factory`) before it starts its first process."""
    die_with_parent()
    if os.getppid() != int(parent_pid):
        sys.exit("hotline up has ended")  # it did so before the line above
    announcements = Announcements(_standard_output())
    events.subscribe(events.ProcessStateEvent, announcements._announce)
    events.subscribe(events.ProcessStateStartingEvent, announcements._count_start)
    reminders = Reminders(supervisord)
    signal.signal(signal.SIGALRM, reminders.send)
    events.subscribe(events.ProcessStateStoppingEvent, reminders.begin)
    signal.signal(KILL_ALL, lambda *_: _kill_all(supervisord))
    return announcements


def _standard_output() -> TextIO:
    """For the announcements alone: supervisord prints there too, where a client of its socket has gone."""
    output = open(os.dup(1), "w")  # noqa: SIM115 (until the process ends)
    os.dup2(2, 1)
    return output


def _kill_all(supervisord: Any) -> None:
    for group in supervisord.process_groups.values():
        for process in group.get_unstopped_processes():
            if process.pid:  # and of its group: an engine has processes of its own
                os.killpg(process.pid, signal.SIGKILL)
