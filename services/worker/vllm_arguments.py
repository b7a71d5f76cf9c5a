"""Settings -> vLLM's engine arguments: the one place where engine flags are mapped."""

from typing import Any

from services.worker.settings import WorkerSettings

_SAME_NAME = (
    "dtype",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "kv_cache_memory_bytes",
    "gpu_memory_utilization",
    "block_size",
    "enable_prefix_caching",
    "enforce_eager",
    "tensor_parallel_size",
    "seed",
)
"""Settings that carry vLLM's own names; None leaves vLLM its own choice."""


def engine_arguments(settings: WorkerSettings, has_images: bool) -> dict[str, Any]:
    """Keyword arguments of vllm.AsyncEngineArgs.

    Args:
        has_images: whether the model sees images; vLLM refuses limits for what it does not see.
    """
    values = {name: getattr(settings, name) for name in _SAME_NAME}
    arguments = {name: value for name, value in values.items() if value is not None}
    arguments.update(
        model=str(settings.model_path),
        served_model_name=settings.model_name,
        trust_remote_code=False,
        scheduling_policy="priority",
        max_logprobs=20,
        enable_log_requests=False,
        use_tqdm_on_load=False,
        # Without disable_any_whitespace a small model writes blanks until max_tokens.
        structured_outputs_config={"backend": "xgrammar", "disable_any_whitespace": True},
        # Our feature store is the cache of pixels, bounded in bytes; vLLM's would hold them twice.
        mm_processor_cache_gb=0,
    )
    if has_images:
        arguments.update(
            limit_mm_per_prompt={"image": settings.max_images, "video": 0},
            mm_processor_kwargs=settings.mm_processor_kwargs or None,
            # The tokenizer sends pixels as bytes: normalised twice, or never, they would be silently wrong.
            mm_device_do_normalize=True,
        )
    return arguments
