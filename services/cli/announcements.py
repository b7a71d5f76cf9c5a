"""A plug-in of supervisord: tells `hotline up`, on standard output, what becomes of the processes.

One JSON object a line: {"process": name, "state": supervisord's word, "exit_code": number or null}.
It also ties supervisord's life to that of `up`, kills everything at once on SIGUSR1, the second Ctrl-C, and reminds
processes that are to stop.
"""

import json
import os
import signal
import sys
from typing import Any

from supervisor import events
from supervisor.states import getProcessStateDescription

from services.cli.reminders import Reminders
from services.runtime.parent import die_with_parent

KILL_ALL = signal.SIGUSR1
"""Tells a supervisord that is stopping to kill what it still runs."""


class Announcements:
    """Has no remote methods of its own; supervisord wants an object."""


def create(supervisord: Any, parent_pid: str) -> Announcements:
    """Called by supervisord (`supervisor.rpcinterface_factory`) before it starts its first process."""
    die_with_parent()
    if os.getppid() != int(parent_pid):
        sys.exit("hotline up has ended")  # it did so before the line above
    events.subscribe(events.ProcessStateEvent, _announce)
    reminders = Reminders(supervisord)
    signal.signal(signal.SIGALRM, reminders.send)
    events.subscribe(events.ProcessStateStoppingEvent, reminders.begin)
    signal.signal(KILL_ALL, lambda *_: _kill_all(supervisord))
    return Announcements()


def _announce(event: Any) -> None:
    process = event.process
    line = {
        "process": process.config.name,
        "state": getProcessStateDescription(process.state),
        "exit_code": process.exitstatus,
    }
    try:
        print(json.dumps(line), flush=True)
    except BrokenPipeError:
        # `up` was killed. SIGTERM is on its way; an exception here would end supervisord before its processes.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (until the process ends)


def _kill_all(supervisord: Any) -> None:
    for group in supervisord.process_groups.values():
        for process in group.get_unstopped_processes():
            if process.pid:  # and of its group: an engine has processes of its own
                os.killpg(process.pid, signal.SIGKILL)
