"""What `hotline up` shows: a line per process and change, and a spinner where there is a terminal."""

import json
import time
from collections.abc import Sequence
from typing import Protocol, TextIO

_COLOURS = {
    "ready": "green",
    "loading": "yellow",
    "starting": "dim",
    "stopping": "yellow",
    "stopped": "dim",
    "ended": "red",
}

_QUIET_FIELDS = ("event", "level", "service", "name", "timestamp", "exception")


class Progress(Protocol):
    """Where changes are shown."""

    def change(self, process: str, state: str, detail: str = "") -> None:
        """A process is in another state; the same state again shows nothing."""

    def stopping(self) -> None:
        """From here on everything is on its way down."""

    def line(self, text: str) -> None:
        """A line of text, as it is."""

    def close(self) -> None:
        """End the spinner."""


class PlainProgress:
    """One line per change, with the seconds since the start. Where nobody reads on: BrokenPipeError, once."""

    def __init__(self, output: TextIO) -> None:
        self._output, self._start_s = output, time.monotonic()
        self._states: dict[str, tuple[str, str]] = {}
        self._stopping, self._is_read = False, True

    def change(self, process: str, state: str, detail: str = "") -> None:
        """Show a change."""
        if self._states.get(process) == (state, detail):
            return
        self._states[process] = (state, detail)
        self._show(process, state, f"  ({detail})" if detail else "")

    def _show(self, process: str, state: str, suffix: str) -> None:
        self.line(f"[{self.elapsed_s:6.1f} s] {process:<12} {state}{suffix}")

    @property
    def elapsed_s(self) -> float:
        """Since this began."""
        return time.monotonic() - self._start_s

    def stopping(self) -> None:
        """From here on everything is on its way down."""
        self._stopping = True

    def activity(self) -> str:
        """What is going on, in words; empty where nothing is."""
        states = {name: state for name, (state, _) in self._states.items()}
        if self._stopping:
            left = [name for name, state in states.items() if state not in ("stopped", "ended")]
            return f"stopping {', '.join(left)}" if left else ""
        coming = [name for name, state in states.items() if state in ("starting", "loading")]
        return f"waiting for {', '.join(coming)}" if coming else ""

    def line(self, text: str) -> None:
        """Show a line."""
        if not self._is_read:
            return
        try:
            print(text, file=self._output, flush=True)
        except BrokenPipeError:
            self._is_read = False  # the stop that this brings about goes on in silence
            raise

    def close(self) -> None:
        """Nothing spins."""


class TerminalProgress(PlainProgress):
    """The same in colour, above a spinner that says what is going on."""

    def __init__(self, output: TextIO) -> None:
        from rich.console import Console

        super().__init__(output)
        self._console = Console(file=output, highlight=False)
        self._spinner = self._console.status("starting")
        self._spinner.start()

    def change(self, process: str, state: str, detail: str = "") -> None:
        """Show a change, and what is still going on."""
        super().change(process, state, detail)
        self._spin()

    def stopping(self) -> None:
        """From here on everything is on its way down."""
        super().stopping()
        self._spin()

    def _spin(self) -> None:
        activity = self.activity()
        if activity:
            self._spinner.update(activity)
            self._spinner.start()
        else:
            self._spinner.stop()

    def _show(self, process: str, state: str, suffix: str) -> None:
        from rich.text import Text

        line = Text(f"[{self.elapsed_s:6.1f} s] {process:<12} ")
        line.append(state, style=_COLOURS.get(state, ""))
        line.append(suffix, style="dim")
        self._console.print(line)

    def line(self, text: str) -> None:
        """Show a line."""
        self._console.print(text, markup=False, soft_wrap=True)

    def close(self) -> None:
        """End the spinner."""
        self._spinner.stop()


def open_progress(output: TextIO) -> Progress:
    """What suits the output."""
    return TerminalProgress(output) if output.isatty() else PlainProgress(output)


def indented(lines: Sequence[str]) -> str:
    """Lines of a log for people, set apart."""
    return "\n".join(f"    {readable(line)}" for line in lines)


def readable(line: str) -> str:
    """One line of a service's log; of a structured one the event, and the last line of its traceback."""
    try:
        entry = json.loads(line)
    except ValueError:
        return line
    if not isinstance(entry, dict) or "event" not in entry:
        return line
    fields = [f"{key}={value}" for key, value in entry.items() if key not in _QUIET_FIELDS]
    text = " ".join([f"{entry.get('level', 'info')}: {entry['event']}", *fields])
    trace = str(entry.get("exception", "")).strip()
    return f"{text}: {trace.splitlines()[-1]}" if trace else text
