"""The process environment that vLLM reads, set in one place before it is first imported."""

import os
from collections.abc import Mapping

from services.worker.settings import WorkerSettings


def prepare_environment(settings: WorkerSettings) -> None:
    """Set vLLM's variables. What the operator set already stays, except what would break the worker."""
    for name, value in _defaults(settings).items():
        os.environ.setdefault(name, value)
    os.environ.update(_required())
    # Replaces kv_cache_memory_bytes where it is set, in whole GiB.
    os.environ.pop("VLLM_CPU_KVCACHE_SPACE", None)


def _defaults(settings: WorkerSettings) -> Mapping[str, str]:
    return {
        # Two threads on two busy cores make the engine ten times slower.
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "VLLM_LOGGING_LEVEL": "WARNING" if settings.log_level == "INFO" else settings.log_level,
        # 0 keeps the model in the engine's process (one process less); several devices need their own.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1" if settings.tensor_parallel_size > 1 else "0",
    }


def _required() -> Mapping[str, str]:
    return {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        # This process has gRPC's threads: a fork of it may hang.
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        # stdout belongs to whoever started us.
        "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    }
