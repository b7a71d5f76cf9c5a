"""The engine's flags: vLLM's own names, typed and bounded; docs/parameters.md is the table.

None leaves vLLM its own choice. What is not here goes through `engine_args`, checked.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from services.runtime.settings import ServiceSettings
from services.worker.pass_through import refuse_custom_speculation, refuse_forbidden

MIB = 1024 * 1024


class EngineSettings(ServiceSettings):
    """How the engine runs. The defaults suit two CPU cores and the tiny model."""

    # Numbers and weights.
    dtype: Literal["auto", "half", "float16", "bfloat16", "float", "float32"] = "auto"
    """Type of weights and activations. `auto`: as the checkpoint was saved."""
    quantization: str | None = Field(None, min_length=1, max_length=64)
    """How the weights are quantised, such as `fp8`, `gptq` or `compressed-tensors`. None: as config.json says."""
    load_format: str = Field("auto", min_length=1, max_length=64)
    """Format of the weights' files; `dummy`: random weights, to measure without a checkpoint."""
    max_model_len: int = Field(8192, ge=2)
    """Prompt and output together, in tokens; at most what the model was made for."""
    seed: int = Field(0, ge=0, lt=2**32)
    """Seed of the engine; requests with a seed of their own do not depend on it."""

    # Devices.
    tensor_parallel_size: int = Field(1, ge=1, le=64)
    """Devices that share each layer; divides the model's attention heads."""
    pipeline_parallel_size: int = Field(1, ge=1, le=64)
    """Groups of devices that hold some layers each. Devices in all: this times tensor_parallel_size."""
    mm_encoder_tp_mode: Literal["weights", "data"] = "weights"
    """Several devices and images: `weights` splits the vision tower's layers, `data` gives each device whole images."""

    # Memory.
    kv_cache_memory_bytes: int | None = Field(64 * MIB, ge=MIB)
    """Bytes of KV cache on each device. None: what gpu_memory_utilization leaves (never on a CPU: it takes the RAM)."""
    gpu_memory_utilization: float | None = Field(None, gt=0, le=1)
    """Share of a device's memory for weights, activations and cache. None: vLLM's choice; unused with kv_cache_memory_bytes."""
    kv_cache_dtype: str = Field("auto", min_length=1, max_length=64)
    """Type of the KV cache, such as `fp8` for half the bytes. `auto`: that of the model."""
    block_size: int | None = Field(32, ge=1)
    """Tokens in one KV block; 32 is quick on a CPU. None: vLLM's choice."""
    enable_prefix_caching: bool = True
    """Keep the KV of prompts for later prompts that begin alike, under the same salt."""
    kv_offloading_size: float | None = Field(None, gt=0)
    """GiB of host memory, over all devices, where KV blocks go before they are dropped. None: no such place."""
    cpu_offload_gb: float = Field(0.0, ge=0)
    """GiB of weights for each device that stay in host memory; every step reads them over the bus."""

    # Steps.
    max_num_seqs: int = Field(16, ge=1, le=4096)
    """Generations in one step of the engine; the next ones wait in the engine's queue."""
    max_num_batched_tokens: int | None = Field(None, ge=1)
    """Tokens in one step, prefill and decode together. None: vLLM's choice."""
    enable_chunked_prefill: bool | None = None
    """Cut long prompts over several steps, so that running generations go on meanwhile. None: vLLM's choice, true."""
    long_prefill_token_threshold: int = Field(0, ge=0)
    """Most tokens of one prompt in a step while others wait or run. 0: no limit but max_num_batched_tokens."""
    long_prefill_token_threshold_adaptive: bool = False
    """Raise that limit to a fair share of the step's tokens where few generations are there."""
    stream_interval: int = Field(1, ge=1, le=1024)
    """Tokens of a generation that are sent together; 1: each as it comes. The first is never held back."""
    speculative_config: Annotated[
        dict[str, Any] | None, AfterValidator(refuse_custom_speculation)
    ] = None
    """Speculative decoding, such as `{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}`."""

    # Compilation.
    enforce_eager: bool = True
    """true: no compilation; a start in seconds. false: slower start, more tokens a second."""
    optimization_level: int | None = Field(None, ge=0, le=3)
    """How much is compiled where enforce_eager is false, 0 (nothing) to 3. None: vLLM's choice, 2."""

    # Images.
    max_images: int = Field(4, ge=0, le=64)
    """Images in one prompt (vLLM's limit_mm_per_prompt; video is always 0)."""
    mm_processor_kwargs: dict[str, Any] = Field(default_factory=dict)
    """The processor's options that change an image's size, such as `{"max_pixels": 5000000}` (a frame counts twice).
    Must agree with the tokenizer's."""
    mm_processor_cache_gb: float = Field(0.0, ge=0)
    """GiB of vLLM's own cache of pixels, in the worker and again in the engine. 0: none; feature_store_bytes is ours."""
    mm_processor_cache_type: Literal["lru"] = "lru"
    """Where that cache is. vLLM's other choice, `shm`, lets one request without pixels end the engine."""

    engine_args: Annotated[dict[str, Any], AfterValidator(refuse_forbidden)] = Field(
        default_factory=dict
    )
    """Further fields of vLLM's AsyncEngineArgs by name. Unknown ones are refused at the start, forbidden ones at once."""


OWN_NAMES = frozenset({"max_images", "engine_args"})
"""Settings that vLLM knows by another name."""
IMAGE_NAMES = frozenset({"mm_processor_kwargs", "mm_encoder_tp_mode"})
"""Settings that are only told to a model that sees images."""
ENGINE_FLAGS = tuple(
    name
    for name in EngineSettings.model_fields
    if name not in OWN_NAMES and name not in ServiceSettings.model_fields
)
"""Settings that carry vLLM's own names."""
