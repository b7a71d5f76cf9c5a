"""Settings of the gateway."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from services.runtime.settings import ServiceSettings


class GatewaySettings(ServiceSettings):
    """Settings of one gateway process."""

    model_config = SettingsConfigDict(env_prefix="HOTLINE_GATEWAY_")

    tokenizers: dict[str, str] = Field(min_length=1)
    """Tokenizer processes: configured name -> address."""
    workers: dict[str, str] = Field(min_length=1)
    """Worker processes: configured name -> address."""
    model_aliases: list[str] = Field([], max_length=64)
    """Other names of the default model (the first worker's); listed in /v1/models, replies carry the canonical one."""
    max_running: int = Field(256, ge=1)
    """Generations at once; the next ones wait."""
    max_waiting: int = Field(1024, ge=0)
    """Requests waiting for a place; the next one is refused with OVERLOADED. 0: nobody waits."""
    queue_timeout_s: float = Field(60.0, gt=0, le=600)
    """Longest wait for a place; then OVERLOADED."""
    render_timeout_s: float = Field(30.0, gt=0, le=300)
    """Longest wait for a tokenizer to render, and to push features."""
    text_rebuild_timeout_s: float = Field(10.0, ge=0, le=300)
    """Longest time that a running generation waits for a detokeniser after its own one went; then UNAVAILABLE."""
    generation_timeout_s: float = Field(600.0, gt=0, le=3600)
    """Longest generation where the client set no deadline, and the most that a deadline may ask for."""
    max_body_bytes: int = Field(32 * 1024 * 1024, ge=1024)
    """Largest REST body; the edge has the same limit and answers first."""
    parse_off_loop_bytes: int = Field(64 * 1024, ge=0)
    """REST bodies above this are parsed in a thread."""
