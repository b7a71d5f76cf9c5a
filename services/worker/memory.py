"""How much memory a model and its KV cache need, and whether it is there."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.worker.engine_settings import EngineSettings
from services.worker.machine import GIB, Machine, UnfitError

VLLM_UTILIZATION = 0.92
"""vLLM's share of a device where gpu_memory_utilization is not set."""
PROCESS_BYTES = 700 * 1024**2
"""A CPU engine's process without weights and cache: libraries and buffers (760 MB measured with the tiny model)."""
_SIZES = {
    **dict.fromkeys(("float32", "float"), 4),
    **dict.fromkeys(("bfloat16", "float16", "half"), 2),
}
_OTHER_CACHES = ("sliding_window", "layer_types", "linear_num_key_heads", "kv_lora_rank")
"""Keys of models whose layers keep KV of other shapes; their cache is not worked out here."""


@dataclass(frozen=True)
class Need:
    """Bytes in all, over all devices."""

    weights: int
    kv_token: int | None
    """KV of one token; None: not known for this kind of model."""


def need(settings: EngineSettings, config: Mapping[str, Any], file_bytes: int) -> Need:
    """What a model needs under these settings.

    Args:
        config: config.json.
        file_bytes: size of the weights' files, in the checkpoint's type.
    """
    text = {**config, **config.get("text_config", {})}
    saved = _SIZES.get(str(config.get("dtype") or config.get("torch_dtype")), 2)
    used = _SIZES.get(settings.dtype, saved)
    quantised = settings.quantization is not None or "quantization_config" in config
    weights = file_bytes if quantised else file_bytes * used // saved
    return Need(weights, _kv_token_bytes(text, settings, used))


def _kv_token_bytes(text: Mapping[str, Any], settings: EngineSettings, size: int) -> int | None:
    if any(text.get(key) for key in _OTHER_CACHES):
        return None
    try:
        heads = int(text["num_attention_heads"])
        kv_heads = int(text.get("num_key_value_heads") or heads)
        head_size = int(text.get("head_dim") or int(text["hidden_size"]) // heads)
        layers = int(text["num_hidden_layers"])
    except (KeyError, TypeError):
        return None
    if settings.kv_cache_dtype != "auto":
        size = _SIZES.get(settings.kv_cache_dtype, 1)
    # Each device holds at least one head.
    return 2 * layers * max(kv_heads, settings.tensor_parallel_size) * head_size * size


def check_memory(machine: Machine, settings: EngineSettings, wanted: Need) -> str:
    """What will be taken of what. Raises UnfitError where it is not there."""
    devices = settings.tensor_parallel_size * settings.pipeline_parallel_size
    weights = wanted.weights / devices
    cache = settings.kv_cache_memory_bytes
    context = (wanted.kv_token or 0) * settings.max_model_len / devices
    if cache is not None and context > cache:
        raise UnfitError(
            f"kv_cache_memory_bytes is {_gib(cache)}, but max_model_len {settings.max_model_len} needs "
            f"{_gib(context)} on each device"
        )
    if machine.kind == "cpu":
        return _check_host(machine, weights, cache, devices)
    weights = max(0.0, weights - settings.cpu_offload_gb * GIB)
    share = settings.gpu_memory_utilization or VLLM_UTILIZATION
    for index, device in enumerate(machine.devices[:devices]):
        free = f"device {index} has {_gib(device.free_bytes)} free of {_gib(device.total_bytes)}"
        if cache is not None:
            if weights + cache > device.free_bytes:
                raise UnfitError(
                    f"{free}; its share of the weights is {_gib(weights)}, kv_cache_memory_bytes {_gib(cache)}"
                )
            continue
        budget = share * device.total_bytes
        if budget > device.free_bytes:
            raise UnfitError(f"{free}; gpu_memory_utilization {share:g} takes {_gib(budget)}")
        if weights + context > budget:
            raise UnfitError(
                f"gpu_memory_utilization {share:g} is {_gib(budget)} of device {index}; its share of the weights is "
                f"{_gib(weights)}, of one context of max_model_len {_gib(context)}"
            )
    host = (settings.kv_offloading_size or 0) * GIB + settings.cpu_offload_gb * GIB * devices
    if host > machine.host_free_bytes:
        raise UnfitError(
            f"the host has {_gib(machine.host_free_bytes)} free; kv_offloading_size and cpu_offload_gb take {_gib(host)}"
        )
    kept = f"KV cache {_gib(cache)}" if cache is not None else f"in all at most {share:.0%}"
    return f"on each device weights {_gib(weights)}, {kept}"


def _check_host(machine: Machine, weights: float, cache: int | None, devices: int) -> str:
    if cache is None:
        raise UnfitError(
            "kv_cache_memory_bytes must be set on a CPU: vLLM would take most of the memory"
        )
    total = devices * (weights + cache + PROCESS_BYTES)
    if total > machine.host_free_bytes:
        raise UnfitError(
            f"{_gib(machine.host_free_bytes)} are free, about {_gib(total)} are needed: for each of {devices} "
            f"device(s) weights {_gib(weights)}, KV cache {_gib(cache)}, process {_gib(PROCESS_BYTES)}"
        )
    return f"about {_gib(total)} of {_gib(machine.host_free_bytes)} free"


def _gib(count: float) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB / 10 else f"{count / 1024**2:.0f} MiB"
