"""What an engine is to this service: ids and features in, ids out. Implemented by vllm_engine and sim."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeAlias


class Grid(NamedTuple):
    """The shape of an image feature in patches."""

    t: int
    """Frames after temporal merging; 1."""
    h: int
    """Rows."""
    w: int
    """Columns."""

    @property
    def patches(self) -> int:
        """Patches in all."""
        return self.t * self.h * self.w


@dataclass(frozen=True)
class FeatureTensor:
    """The pixels of one image as the processor cut them, before normalisation."""

    digest: bytes
    """services.runtime.digest.feature_digest, 32 bytes."""
    grid: Grid
    shape: tuple[int, ...]
    """[t * h * w, channels * patch * patch]; one temporal frame, the model's duplicate is made again by the engine."""
    data: memoryview
    """uint8, C order."""


@dataclass(frozen=True)
class Placement:
    """Where a feature stands in a prompt."""

    digest: bytes
    modality: str
    """`IMAGE` or `AUDIO`, the contract's names."""
    offset: int
    """Index of its first placeholder token."""
    length: int
    """Placeholder tokens; t * h * w / merge^2 for an image."""
    grid: Grid


@dataclass(frozen=True)
class PlacedFeature:
    """A placement with its tensor."""

    placement: Placement
    tensor: FeatureTensor


@dataclass(frozen=True)
class Prompt:
    """What the engine reads. Validated: an engine may trust every number in it."""

    token_ids: Sequence[int]
    features: Sequence[PlacedFeature] = ()
    """In rising offset."""
    cache_salt: str = ""
    """KV and encoder output are shared only under the same salt; empty: by all."""


@dataclass(frozen=True)
class Constraint:
    """A form that the output must have."""

    kind: str
    """`json_object`, `json_schema`, `regex`, `choice` or `grammar`."""
    text: str = ""
    """The schema, expression or grammar."""
    choices: Sequence[str] = ()


@dataclass(frozen=True)
class Sampling:
    """sampling.proto, checked. None: the model's own default."""

    max_tokens: int
    """At least 1, at most the room left in the context."""
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    """0 and -1: no limit."""
    min_p: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float | None = None
    seed: int | None = None
    """Any signed 64-bit value; None: random."""
    min_tokens: int = 0
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    n: int = 1
    constraint: Constraint | None = None


@dataclass(frozen=True)
class Job:
    """One generation, as an engine gets it."""

    generation_id: str
    """Unique among the engine's running generations."""
    prompt: Prompt
    sampling: Sampling
    priority: int = 0
    """-100 (first) to 100 (last)."""
    trace_key: str = ""
    """The simulator's tokens follow from it; other engines ignore it."""
    moved_tokens: int = 0
    """The last ids of the prompt are so many that were sampled for this generation on another worker."""


class Reason(StrEnum):
    """Why a choice ended; the contract's names."""

    STOP = "STOP"
    STOP_SEQUENCE = "STOP_SEQUENCE"
    LENGTH = "LENGTH"
    TIME_LIMIT = "TIME_LIMIT"
    CANCELLED = "CANCELLED"


class Logprob(NamedTuple):
    """Natural logarithm of one token's probability."""

    token_id: int
    logprob: float


class PositionLogprobs(NamedTuple):
    """One position: what was sampled, and the likeliest tokens, best first."""

    sampled: Logprob
    top: Sequence[Logprob]


@dataclass(frozen=True)
class Started:
    """The engine has read the prompt. Always the first step."""

    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True)
class Tokens:
    """New ids of one choice, never empty; end tokens included."""

    choice_index: int
    position: int
    """Index of the first of these ids in the choice's output."""
    token_ids: Sequence[int]
    logprobs: Sequence[PositionLogprobs] = ()
    """One for each id, or empty where not asked for."""


@dataclass(frozen=True)
class Finished:
    """One choice has ended; exactly one for each."""

    choice_index: int
    reason: Reason
    completion_tokens: int
    stop_token_id: int | None = None
    """With STOP and STOP_SEQUENCE: the token that ended it."""


Step: TypeAlias = Started | Tokens | Finished


@dataclass(frozen=True)
class Load:
    """How busy an engine is."""

    running: int
    waiting: int
    kv_usage_ratio: float
    """0 to 1."""


class Engine(Protocol):
    """One resident model. One event loop uses it."""

    name: str
    """`vllm` or `sim`."""
    last_step_s: float
    """When it last ended a step, by time.monotonic's clock. While generations run, a busy engine goes on making steps
    and a hung one does not."""

    async def start(self) -> None:
        """Load; after `close`, anew. `close` frees what a start that was cancelled or failed has left."""

    def generate(self, job: Job) -> AsyncGenerator[Step, None]:
        """One generation: Started, Tokens..., one Finished for each choice. Closing it frees the slot at once.

        Raises InvalidArgumentError for what only the engine can know to be wrong (a grammar, say),
        EngineDeadError where the engine ends, InternalError where this generation alone failed.
        """

    def load(self) -> Load:
        """How busy it is now."""

    async def died(self) -> None:
        """Return when the engine has ended without being told to."""

    async def close(self) -> None:
        """End it and its processes, also where it has ended or hangs, in bounded time. Idempotent."""
