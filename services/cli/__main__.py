"""The `hotline` command: how it ends where it is interrupted, or where nobody reads on.

Imports nothing that is not there already: Ctrl-C during an import is an interruption as any other.
"""

import os
import sys

_INTERRUPTED = 130  # as shells report SIGINT
_NOBODY_READS = 141  # and SIGPIPE


def main(arguments: list[str] | None = None) -> int:
    """Run a subcommand; returns its exit code."""
    try:
        from services.cli.command_line import run

        try:
            return run(arguments)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here, where a reader that has gone can still be handled
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return _NOBODY_READS


def _discard_output() -> None:
    """What is still in the buffers goes nowhere: the interpreter flushes them at its end and would complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            os.dup2(nowhere, stream.fileno())


if __name__ == "__main__":
    sys.exit(main())
