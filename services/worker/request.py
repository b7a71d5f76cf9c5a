"""A generation as it was asked for, not yet checked; wire.py makes it, validation.py judges it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from services.worker.engine import Constraint, Placement


@dataclass(frozen=True)
class SamplingRequest:
    """SamplingParameters; absent fields are None."""

    numbers: Mapping[str, float] = field(default_factory=dict)
    """The scalar fields that are present, by their name in the contract."""
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    constraint: Constraint | None = None
    """A constraint of kind "" stands for a structured_output with nothing in it."""


@dataclass(frozen=True)
class GenerateRequest:
    """WorkerGenerateRequest."""

    generation_id: str
    prompt_token_ids: Sequence[int]
    placements: Sequence[Placement] = ()
    sampling: SamplingRequest = field(default_factory=SamplingRequest)
    cache_salt: str = ""
    priority: int = 0
    time_limit_ms: int = 0
    adapter: str = ""
    output_token_ids: Sequence[int] = ()
    trace_key: str = ""
