"""Passes SIGHUP on to the gateways of a running stack, which then read their keys again."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from services.cli.supervised import signal_group

_TIMEOUT_S = 5.0


class Reload:
    """One passing on at a time; what is asked for meanwhile follows it, once."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        """`folder`: the stack's runtime folder; `say`: takes a line for people."""
        self._folder, self._say = folder, say
        self._wanted = False
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Pass it on soon."""
        self._wanted = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="pass SIGHUP on")

    async def _run(self) -> None:
        while self._wanted:
            self._wanted = False
            signalled = asyncio.to_thread(signal_group, self._folder, "gateways", "HUP", _TIMEOUT_S)
            try:
                count = await signalled
            except OSError as error:
                self._say(f"SIGHUP could not be passed on: {error}")
            else:
                self._say(f"reload: gateways that read their keys again: {count}")
