"""Executors whose process belongs to the worker: it ends with it, and only through it.

vLLM's engine process otherwise outlives a worker that was killed, and a Ctrl-C in the terminal ends it while the worker
still drains.

Imported only beside vLLM, in the worker and, by name, in its engine process.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any

from tqdm import tqdm  # type: ignore[import-untyped]
from vllm.v1.executor import multiproc_executor, uniproc_executor
from vllm.v1.executor.multiproc_executor import MultiprocExecutor, WorkerProc
from vllm.v1.executor.uniproc_executor import UniProcExecutor

from services.worker.vllm_grammars import compile_grammars_last
from services.worker.vllm_remains import meeting_point, remove_own_remains
from services.worker.vllm_seeds import mend_seeds


def belong_to_parent(then: Callable[[], None] = lambda: None) -> None:
    """In a child process: exit as soon as the parent has ended, however it did; leave Ctrl-C to the parent.

    Args:
        then: done first where the parent has ended.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # tqdm's own lock is a named semaphore, which stays in /dev/shm when this process is killed.
    tqdm.set_lock(threading.RLock())
    sentinel = parent.sentinel

    def watch() -> None:
        wait([sentinel])
        then()
        # No clean-up of vLLM's: whoever would receive its results is gone. The operating system frees memory, and
        # multiprocessing's resource tracker, a process of its own, unlinks what Python has shared.
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


class WatchedUniProcExecutor(UniProcExecutor):  # type: ignore[misc]
    """The model in the engine's process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        belong_to_parent(then=remove_own_remains)
        compile_grammars_last()
        uniproc_executor.get_file_store_init_method = meeting_point
        mend_seeds()
        super().__init__(*args, **kwargs)


class WatchedWorkerProc(WorkerProc):  # type: ignore[misc]
    """One device's process. vLLM's own looks at its parent only once the model is loaded."""

    @staticmethod
    def worker_main(*args: Any, **kwargs: Any) -> None:
        """Runs in the device's process until the engine ends it."""
        belong_to_parent()
        # vLLM sets a handler for Ctrl-C here: blocked, it never runs, in no thread.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        mend_seeds()
        WorkerProc.worker_main(*args, **kwargs)


class WatchedMultiprocExecutor(MultiprocExecutor):  # type: ignore[misc]
    """A process for each device."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        belong_to_parent(then=remove_own_remains)
        compile_grammars_last()
        # MultiprocExecutor takes both by these names and has no other way to replace them.
        multiproc_executor.WorkerProc = WatchedWorkerProc
        multiproc_executor.get_file_store_init_method = meeting_point
        super().__init__(*args, **kwargs)


WATCHED = {
    UniProcExecutor: WatchedUniProcExecutor,
    MultiprocExecutor: WatchedMultiprocExecutor,
}
"""vLLM's choice of executor -> ours. Others (Ray) have a life of their own."""
