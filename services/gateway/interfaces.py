"""What the relay needs of a tokenizer and of a worker, without gRPC: the clients implement it, tests can too."""

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from services.gateway.events import Action, Finish
from services.runtime.errors import ServiceError


@dataclass(frozen=True)
class GenerationRequest:
    """One generation, checked and resolved. Messages, options and sampling pass through the gateway unread."""

    generation_id: str
    owner: str
    model: str
    """Canonical name."""
    messages: Sequence[Any]
    """hotline.v1.Message; the tokenizer reads them."""
    render_options: Any
    """hotline.v1.RenderOptions; the tokenizer reads them."""
    sampling: Any
    """hotline.v1.SamplingParameters; the worker reads them, without `stop`."""
    choice_count: int
    stop: Sequence[str]
    split_reasoning: bool
    ignore_eos: bool
    max_tokens: int | None
    """None: the room left in the context."""
    priority: int
    deadline_s: float
    """On the gateway's monotonic clock."""


@dataclass(frozen=True)
class Rendered:
    """A prompt as the tokenizer made it."""

    token_ids: Sequence[int]
    features: Sequence[Any]
    """hotline.v1.FeaturePlacement; the worker reads them."""
    feature_digests: Sequence[bytes]
    thinking_closed: bool


@dataclass(frozen=True)
class TextOptions:
    """How one choice's ids become text."""

    stop: Sequence[str]
    split_reasoning: bool
    thinking_closed: bool
    ignore_eos: bool


@dataclass(frozen=True)
class TextOutput:
    """What a choice's ids became."""

    text: str
    reasoning: str
    consumed_tokens: int
    finished: bool
    stop_match: str
    end_tag: bool
    action: Action | None


TextSink: TypeAlias = Callable[[TextOutput | ServiceError], None]
"""Called on the loop for every output of a handle; an error is the last call."""


class TextStream(Protocol):
    """The text side of one choice."""

    def send(self, token_ids: Sequence[int], last: bool) -> None:
        """Queue ids; never waits. With `last` the remaining text is flushed."""

    def close(self) -> None:
        """Forget it; the sink is not called again. Idempotent."""


class Tokenizer(Protocol):
    """One tokenizer process."""

    @property
    def name(self) -> str:
        """Its configured name."""

    async def render(self, request: GenerationRequest, timeout_s: float) -> Rendered:
        """Render the conversation. Raises ServiceError, naming the message or part at fault."""

    async def push_features(self, digests: Sequence[bytes], worker: str, timeout_s: float) -> None:
        """Send tensors to a worker. Raises FeaturesMissingError where they are gone: render again."""

    def open_text(self, options: TextOptions, choice_index: int, sink: TextSink) -> TextStream:
        """Begin the text of one choice."""


@dataclass(frozen=True)
class WorkerStarted:
    """The engine has begun."""

    cached_tokens: int


@dataclass(frozen=True)
class WorkerTokens:
    """New ids of one choice, in order."""

    choice_index: int
    token_ids: Sequence[int]


@dataclass(frozen=True)
class WorkerFinished:
    """One choice has ended."""

    choice_index: int
    reason: Finish
    stop_token_id: int | None
    completion_tokens: int


WorkerEvent: TypeAlias = WorkerStarted | WorkerTokens | WorkerFinished


class Worker(Protocol):
    """One worker process."""

    @property
    def name(self) -> str:
        """Its configured name."""

    @property
    def context_tokens(self) -> int:
        """Prompt and output together."""

    @property
    def max_images(self) -> int:
        """Images in one prompt."""

    def generate(
        self, request: GenerationRequest, rendered: Rendered, max_tokens: int, time_limit_s: float
    ) -> AsyncGenerator[WorkerEvent, None]:
        """Stream one generation; closing the generator frees the worker's slot. Raises ServiceError."""
