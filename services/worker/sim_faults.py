"""Faults that an operator or a test plans for the simulator. No request can."""

from pydantic import BaseModel, ConfigDict, Field


class SimFaults(BaseModel):
    """What goes wrong. Tokens are counted over all generations of one engine, the warm-up's included."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    die_after_s: float | None = Field(None, ge=0)
    """The engine dies so long after its start. None: never."""
    die_after_tokens: int | None = Field(None, ge=0)
    """The engine dies after so many tokens. None: never."""
    stall_after_tokens: int | None = Field(None, ge=0)
    """Steps stop after so many tokens. None: never."""
    stall_s: float = Field(0.0, ge=0)
    """How long they stop; 0: for ever."""
    slow_factor: float = Field(1.0, gt=0)
    """Steps take so many times their time."""
    failing_starts: int = Field(0, ge=0)
    """The first so many starts fail."""
    engine_count: int = Field(0, ge=0)
    """Only the first so many engines of a process have the faults above; 0: all."""
