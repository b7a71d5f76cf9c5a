"""Settings of the worker; the engine's flags are in engine_settings."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_settings import SettingsConfigDict

from services.runtime.settings import existing_folder
from services.worker.engine_settings import EngineSettings
from services.worker.sim_settings import SimSettings

MIB = 1024 * 1024


class WorkerSettings(SimSettings, EngineSettings):
    """Settings of one worker process, which owns one engine."""

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

    max_waiting: int = Field(64, ge=0)
    """Generations beyond max_num_seqs that may wait in the engine; the next one is refused with OVERLOADED."""
    feature_store_bytes: int = Field(256 * MIB, ge=MIB)
    """Feature tensors held, uploads under way included. At the bound the oldest unused ones go, else OVERLOADED."""
    feature_ttl_s: float = Field(600.0, gt=0)
    """A feature tensor that nothing used for so long is forgotten."""
    start_timeout_s: float = Field(600.0, gt=0)
    """Longest loading and warm-up together; then the process ends with an error, or, where an engine that had served is
    being brought back, the next try begins."""
    engine_stall_timeout_s: float = Field(300.0, ge=0)
    """An engine that makes no step for so long while generations run hangs, and is ended and brought back. Longer than
    the longest step (max_num_batched_tokens of a prompt, or an image). 0: it may hang for ever."""
    engine_max_restarts: int = Field(20, ge=0)
    """So many times an engine is started again in this process, starts that fail included; then the process ends with an
    error, for its supervisor to start a fresh one: each start of vLLM's engine leaves some MiB behind. 0: any number."""
