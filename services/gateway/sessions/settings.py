"""Settings of sessions, a part of the gateway's."""

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

DAY_S = 24 * 3600.0
LEAST_TTL_S = 10.0


class SessionSettings(BaseModel):
    """How long sessions live, and how many there may be."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: Literal["memory", "sqlite", "redis"] = "memory"
    """`memory`: gone with the gateway, for one gateway alone. `sqlite`: a file, also for several gateways of one machine.
    `redis`: a Redis or Valkey server, for any number of them. docs/sessions.md says what each may lose."""
    sqlite_path: Path | None = None
    """With `sqlite`: the file, made where there is none; images are in a folder beside it, `<name>.media`."""
    redis_url: SecretStr | None = None
    """With `redis`: `redis://`, `rediss://` or `unix://`, with the password, if there is one."""
    redis_prefix: str = Field("hotline", pattern=r"^[A-Za-z0-9._-]{1,64}$")
    """What all keys there begin with."""
    default_idle_ttl_s: float = Field(1800.0, ge=LEAST_TTL_S, le=30 * DAY_S)
    """How long a session may lie idle that does not say so itself."""
    max_idle_ttl_s: float = Field(DAY_S, ge=LEAST_TTL_S, le=30 * DAY_S)
    """The longest that one may ask for."""
    default_absolute_ttl_s: float = Field(DAY_S, ge=LEAST_TTL_S, le=365 * DAY_S)
    """How long a session may live at all that does not say so itself."""
    max_absolute_ttl_s: float = Field(7 * DAY_S, ge=LEAST_TTL_S, le=365 * DAY_S)
    """The longest that one may ask for."""
    max_sessions: int = Field(100_000, ge=1, le=10_000_000)
    """Sessions in all; one more is refused with OVERLOADED."""
    max_per_owner: int = Field(10_000, ge=1, le=10_000_000)
    """Sessions of one owner; one more is refused with OVERLOADED."""
    max_media_bytes: int = Field(512 * 1024 * 1024, ge=0)
    """Encoded images of all sessions; the longest unused go first (Redis: of each; what does not fit is not kept). An image whose bytes are gone is missing from later
    prompts, and has to be sent again to be named by its digest."""

    @model_validator(mode="after")
    def _store_is_somewhere(self) -> Self:
        if self.store == "sqlite" and self.sqlite_path is None:
            raise ValueError("store: sqlite needs sqlite_path, the file")
        if self.store == "redis" and self.redis_url is None:
            raise ValueError("store: redis needs redis_url, where the server is")
        return self

    @model_validator(mode="after")
    def _defaults_within_bounds(self) -> Self:
        for kind in ("idle_ttl_s", "absolute_ttl_s"):
            default, most = getattr(self, f"default_{kind}"), getattr(self, f"max_{kind}")
            if default > most:
                raise ValueError(f"default_{kind} is {default:g}, above max_{kind}, {most:g}")
        return self
