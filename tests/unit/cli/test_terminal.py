"""SIGHUP of a terminal that closes is told from one that somebody sends."""

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from pathlib import Path

SCRIPT = """
import signal, sys
from pathlib import Path
from services.cli.terminal import Terminal
terminal, told, listening = Terminal(), *map(Path, sys.argv[1:])
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])  # so that none comes too early
listening.write_text("")
signal.sigwait([signal.SIGHUP])
told.write_text(str(terminal.is_lost()))
if terminal.is_lost():
    terminal.let_go()
print("nobody reads this", flush=True)
"""
LIMIT_S = 20


def started(folder: Path, terminal: int | None) -> "subprocess.Popen[bytes]":
    """A session of its own, whose controlling terminal it is; it says that it listens."""
    listening = folder / "listening"
    os.mkfifo(listening)

    def take_terminal() -> None:
        if terminal is not None:
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            SCRIPT,
            folder / "told",
            listening,
        ],
        stdout=terminal,
        start_new_session=True,
        preexec_fn=take_terminal,
        pass_fds=() if terminal is None else (terminal,),
    )
    listening.read_text()
    return process


def test_a_terminal_that_closes_is_lost(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    process = started(tmp_path, slave)
    os.close(slave)
    os.close(master)
    assert process.wait(LIMIT_S) == 0  # what it prints afterwards is no error
    assert (tmp_path / "told").read_text() == "True"


def test_one_that_is_still_there_is_not(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    process = started(tmp_path, slave)
    process.send_signal(signal.SIGHUP)
    process.wait(LIMIT_S)
    assert (tmp_path / "told").read_text() == "False"
    os.close(slave)
    os.close(master)


def test_without_a_terminal_none_is_lost(tmp_path: Path) -> None:
    process = started(tmp_path, None)
    process.send_signal(signal.SIGHUP)
    process.wait(LIMIT_S)
    assert (tmp_path / "told").read_text() == "False"
