"""SIGHUP has two senders: a terminal that closes, after which nobody could end what runs, and somebody who wants a reload."""

import os

_STANDARD = (0, 1, 2)


class Terminal:
    """The terminal that this process was started from, if any."""

    def __init__(self) -> None:
        self._had_one = _opens()
        self._on_it = [descriptor for descriptor in _STANDARD if os.isatty(descriptor)]

    def is_lost(self) -> bool:
        """Whether there was one, and it has closed."""
        return self._had_one and not _opens()

    def let_go(self) -> None:
        """What would still be written to a lost one goes nowhere: each write would be an error, in the midst of a stop."""
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for descriptor in self._on_it:
            os.dup2(nowhere, descriptor)
        os.close(nowhere)


def _opens() -> bool:
    """The kernel takes a terminal that hung up from all its processes before it tells them."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
