"""Settings of the worker. Engine flags carry vLLM's own names."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_settings import SettingsConfigDict

from services.runtime.settings import ServiceSettings, existing_folder

MIB = 1024 * 1024


class WorkerSettings(ServiceSettings):
    """Settings of one worker process, which owns one engine. The defaults suit two CPU cores and the tiny model."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_nested_delimiter="__",
        env_prefix="HOTLINE_WORKER_",
        protected_namespaces=(),
    )

    engine: Literal["vllm", "sim"] = "vllm"
    """`vllm`: the model. `sim`: a simulator whose tokens mean nothing, for front-end work and fault tests."""
    model_path: Annotated[Path, AfterValidator(existing_folder)]
    """Folder with the model's configuration and weights; local files only, no code of the model's is run."""
    model_name: str = Field("autoglm-phone-tiny", min_length=1, max_length=128)
    """The model's canonical name, as GetStatus tells it."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Type of weights and activations. `auto`: as the checkpoint was saved."""
    max_model_len: int = Field(8192, ge=2)
    """Prompt and output together, in tokens; at most what the model was made for."""
    max_num_seqs: int = Field(16, ge=1, le=4096)
    """Generations in one step of the engine; the next ones wait in the engine's queue."""
    max_num_batched_tokens: int | None = Field(None, ge=1)
    """Tokens in one step, prefill and decode together. None: vLLM's choice."""
    kv_cache_memory_bytes: int | None = Field(64 * MIB, ge=MIB)
    """Bytes of KV cache on each device. None: what gpu_memory_utilization leaves (never on a CPU: it takes the RAM)."""
    gpu_memory_utilization: float | None = Field(None, gt=0, le=1)
    """Share of a device's memory for weights, activations and cache. None: vLLM's choice; unused with kv_cache_memory_bytes."""
    block_size: int | None = Field(32, ge=1)
    """Tokens in one KV block; 32 is quick on a CPU. None: vLLM's choice."""
    enable_prefix_caching: bool = True
    """Keep the KV of prompts for later prompts that begin alike, under the same salt."""
    enforce_eager: bool = True
    """true: no compilation; a start in seconds. false: slower start, more tokens a second."""
    tensor_parallel_size: int = Field(1, ge=1, le=64)
    """Devices that share each layer."""
    seed: int = Field(0, ge=0, lt=2**32)
    """Seed of the engine; requests with a seed of their own do not depend on it."""

    max_images: int = Field(4, ge=0, le=64)
    """Images in one prompt (vLLM's limit_mm_per_prompt; video is always 0)."""
    mm_processor_kwargs: dict[str, Any] = Field(default_factory=dict)
    """The processor's options that change an image's size, such as `{"max_pixels": 5000000}` (a frame counts twice).
    Must agree with the tokenizer's."""

    max_waiting: int = Field(64, ge=0)
    """Generations beyond max_num_seqs that may wait in the engine; the next one is refused with OVERLOADED."""
    feature_store_bytes: int = Field(256 * MIB, ge=MIB)
    """Feature tensors held, uploads under way included. At the bound the oldest unused ones go, else OVERLOADED."""
    feature_ttl_s: float = Field(600.0, gt=0)
    """A feature tensor that nothing used for so long is forgotten."""
    start_timeout_s: float = Field(600.0, gt=0)
    """Longest loading and warm-up together; then the process ends with an error."""

    sim_step_ms: float = Field(20.0, ge=0)
    """Simulator: time between two tokens of one generation. 0: as fast as the loop goes."""
    sim_prefill_tokens_per_s: float = Field(20_000.0, gt=0)
    """Simulator: prompt tokens read in a second, each generation by itself."""
    sim_output_tokens: int = Field(64, ge=1)
    """Simulator: position at which a generation emits an end token, unless min_tokens or ignore_eos forbid it."""
