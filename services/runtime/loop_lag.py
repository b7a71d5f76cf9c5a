"""How late the event loop is: what blocks it delays every stream of the process at once."""

import asyncio
import time
from collections import deque
from collections.abc import Callable

INTERVAL_S = 0.05
"""Between two looks; a tick costs some microseconds."""
WINDOW_TICKS = 1200
"""Looks that are kept: at least the last minute."""


class LoopLag:
    """Asks the loop to be called again and again, and notes by how much later it is.

    Args:
        observe: told of every lag, in seconds.
    """

    def __init__(self, observe: Callable[[float], None]) -> None:
        self._observe = observe
        self._lags_s: deque[float] = deque(maxlen=WINDOW_TICKS)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin on the running loop."""
        self._schedule(asyncio.get_running_loop())

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        # Not by loop.time(): uvloop's is in whole milliseconds.
        due_s = time.monotonic() + INTERVAL_S
        self._timer = loop.call_later(INTERVAL_S, self._tick, loop, due_s)

    def _tick(self, loop: asyncio.AbstractEventLoop, due_s: float) -> None:
        lag_s = max(0.0, time.monotonic() - due_s)  # uvloop may call up to a millisecond early
        self._lags_s.append(lag_s)
        self._observe(lag_s)
        self._schedule(loop)

    def stop(self) -> None:
        """Look no more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def max_s(self) -> float:
        """The largest lag of the window, in seconds; 0 before the first look."""
        return max(self._lags_s, default=0.0)

    def p99_s(self) -> float:
        """The 99th percentile of the window, in seconds; 0 before the first look."""
        lags_s = sorted(self._lags_s)
        return lags_s[int(len(lags_s) * 0.99)] if lags_s else 0.0
