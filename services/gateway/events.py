"""What happens to a generation, as the gateway's own types; wire.py turns them into hotline.v1 events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeAlias

from services.runtime.errors import ServiceError

ActionValue: TypeAlias = str | float | bool | Sequence[float] | None
"""An argument of a phone action."""


class TokenLogprob(Protocol):
    """One token at one place."""

    @property
    def token_id(self) -> int:
        """Its id."""

    @property
    def token(self) -> bytes:
        """Its bytes; those of one character may be spread over several tokens. Empty until its text is known."""

    @property
    def logprob(self) -> float:
        """Natural logarithm of its probability; may be minus infinity."""


class PositionLogprobs(Protocol):
    """One token of an output, and what might have stood in its place."""

    @property
    def sampled(self) -> TokenLogprob:
        """The token that stands there."""

    @property
    def top(self) -> Sequence[TokenLogprob]:
        """The likeliest ones, best first; at most 20."""


class Finish(StrEnum):
    """Why a generation ended; the names of hotline.v1.FinishReason without the prefix."""

    STOP = "STOP"
    STOP_SEQUENCE = "STOP_SEQUENCE"
    LENGTH = "LENGTH"
    TIME_LIMIT = "TIME_LIMIT"
    CANCELLED = "CANCELLED"
    TOOL_CALLS = "TOOL_CALLS"


class State(StrEnum):
    """Where a generation is; the names of hotline.v1.GenerationState without the prefix."""

    QUEUED = "QUEUED"
    PREFILL = "PREFILL"
    DECODING = "DECODING"
    ENDED = "ENDED"


@dataclass(frozen=True)
class Usage:
    """Token counts of one generation, over all choices."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True)
class Timings:
    """Seconds spent in each phase, on the gateway's monotonic clock."""

    queue_s: float = 0.0
    render_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0


@dataclass(frozen=True)
class Accepted:
    """First event: valid, rendered, and in its place."""

    generation_id: str
    model: str
    prompt_tokens: int
    queue_position: int
    session_id: str = ""
    """As clients see it; empty: no session."""


@dataclass(frozen=True)
class Started:
    """A worker has begun."""

    worker: str
    cached_tokens: int


@dataclass(frozen=True)
class Text:
    """Text to append to the answer of one choice; never empty."""

    choice_index: int
    text: str
    logprobs: Sequence[PositionLogprobs] = ()
    """Of the tokens whose last character is in it, where the request asked for them."""


@dataclass(frozen=True)
class Reasoning:
    """Text to append to the thought of one choice; never empty."""

    choice_index: int
    text: str


@dataclass(frozen=True)
class ToolCall:
    """A piece of a tool call: the first one of a call has its id and name, the later ones append to its arguments."""

    choice_index: int
    index: int
    """Which call of this choice, from 0."""
    id: str = ""
    name: str = ""
    arguments: str = ""
    """JSON to append."""


@dataclass(frozen=True)
class Action:
    """The phone action that a whole answer is."""

    choice_index: int
    name: str
    arguments: Mapping[str, ActionValue]


@dataclass(frozen=True)
class ChoiceEnd:
    """How one choice ended."""

    choice_index: int
    reason: Finish
    stop_match: str = ""
    by_token: bool = False
    """A stop token of the request ended it: `stop_match` is its decimal id."""


@dataclass(frozen=True)
class Finished:
    """Terminal: every choice has ended."""

    choices: Sequence[ChoiceEnd]
    usage: Usage
    timings: Timings
    turn_committed: bool = False
    """It is part of its session's history."""

    @property
    def timed_out_unheard(self) -> bool:
        """Whether the time limit came before any token: then there is no text so far to end with."""
        limited = all(end.reason is Finish.TIME_LIMIT for end in self.choices)
        return limited and not self.usage.completion_tokens


@dataclass(frozen=True)
class Failed:
    """Terminal: something broke. Before Accepted it becomes a status, after it an event."""

    error: ServiceError
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class Heartbeat:
    """A sign of life to one reader; it is not numbered: it has the number of the last event that the reader has."""

    state: State
    queue_position: int = 0
    """Generations ahead in the queue."""


Event: TypeAlias = (
    Accepted
    | Started
    | Text
    | Reasoning
    | ToolCall
    | Action
    | ChoiceEnd
    | Heartbeat
    | Finished
    | Failed
)


@dataclass(frozen=True)
class Numbered:
    """An event with the number of the last piece merged into it, from 1."""

    sequence: int
    event: Event
