"""Executors whose process belongs to the worker: it ends with it, and only through it.

vLLM's engine process otherwise outlives a worker that was killed, and a Ctrl-C in the terminal ends it while the worker
still drains.

Imported only beside vLLM, in the worker and, by name, in its engine process.
"""

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import wait
from typing import Any

from vllm.v1.executor.multiproc_executor import MultiprocExecutor
from vllm.v1.executor.uniproc_executor import UniProcExecutor


def belong_to_parent() -> None:
    """In a child process: exit as soon as the parent has ended, however it did; leave Ctrl-C to the parent."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sentinel = parent.sentinel

    def watch() -> None:
        wait([sentinel])
        # No clean-up: whoever would receive its results is gone. The operating system frees the rest, and the
        # devices' own processes end when this one's pipes close.
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


class WatchedUniProcExecutor(UniProcExecutor):  # type: ignore[misc]
    """The model in the engine's process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        belong_to_parent()
        super().__init__(*args, **kwargs)


class WatchedMultiprocExecutor(MultiprocExecutor):  # type: ignore[misc]
    """A process for each device."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        belong_to_parent()
        super().__init__(*args, **kwargs)


WATCHED = {
    UniProcExecutor: WatchedUniProcExecutor,
    MultiprocExecutor: WatchedMultiprocExecutor,
}
"""vLLM's choice of executor -> ours. Others (Ray) have a life of their own."""
