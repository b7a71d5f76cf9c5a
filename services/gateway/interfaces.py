"""What the relay needs of a tokenizer and of a worker, without gRPC: the clients implement it, tests can too."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from services.gateway.caller import Caller
from services.gateway.events import Action, Finish, PositionLogprobs, ToolCall
from services.gateway.renderable import RawPrompt, Renderable
from services.runtime.errors import ServiceError

if TYPE_CHECKING:
    from services.gateway.session_interfaces import TurnOfSession


@dataclass(frozen=True)
class GenerationRequest:
    """One generation, checked and resolved. Messages, options and sampling pass through the gateway unread."""

    generation_id: str
    caller: Caller
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
    prompt: RawPrompt | None = None
    """In place of messages and render_options."""
    field_names: Mapping[str, str] = field(default_factory=dict)
    """What the contract calls a field -> what this request's client called it, for errors."""
    tool_use: Any = None
    """`render_options` where the output may call its tools; None where it may call none."""
    is_movable: bool = False
    """Its sampling's state follows from its ids: another worker can go on where one goes."""
    turn: "TurnOfSession | None" = None
    """The session's turn that it is; `messages` are what is new in it."""

    @property
    def owner(self) -> str:
        """Whose generation it is."""
        return self.caller.owner

    def allowed(self) -> "GenerationRequest":
        """As the caller's key may ask for it: a priority that is too urgent for it becomes its most urgent one."""
        first = self.caller.limits.first_priority
        return self if self.priority >= first else replace(self, priority=first)

    def text_options(self, thinking_closed: bool) -> "TextOptions":
        """How each choice's ids become text, after a prompt that ended inside the answer or before it."""
        split = self.split_reasoning
        return TextOptions(self.stop, split, thinking_closed, self.ignore_eos, self.tool_use)


@dataclass(frozen=True)
class Rendered:
    """A prompt as the tokenizer made it."""

    token_ids: Sequence[int]
    features: Sequence[Any]
    """hotline.v1.FeaturePlacement; the worker reads them."""
    feature_digests: Sequence[bytes]
    thinking_closed: bool
    image_tokens: int = 0
    """Tokens of images among the ids."""
    answer_token_count: int = 0
    """After an answer: so many of its ids stay in front."""
    whole_needed: bool = False
    """After an answer: nothing was rendered, this model's conversations have to be rendered whole."""
    answer_prefix: str = ""
    """What the prompt's end says already in the model's name."""


@dataclass(frozen=True)
class TextOptions:
    """How one choice's ids become text."""

    stop: Sequence[str]
    split_reasoning: bool
    thinking_closed: bool
    ignore_eos: bool
    tool_use: Any = None


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
    logprobs: Sequence[PositionLogprobs] = ()
    """Of the tokens whose last character is in `text`, where they were sent."""
    calls: Sequence[ToolCall] = ()
    """Pieces of tool calls, in order."""


TextSink: TypeAlias = Callable[[TextOutput | ServiceError], None]
"""Called on the loop for every output of a handle; an error is the last call."""


class TextStream(Protocol):
    """The text side of one choice."""

    def send(
        self,
        token_ids: Sequence[int],
        last: bool,
        logprobs: Sequence[PositionLogprobs | None] = (),
    ) -> None:
        """Queue ids; never waits. With `last` the remaining text is flushed.

        Args:
            logprobs: one for each id, or none; they come back with the text. None where nobody will look at it.
        """

    def close(self) -> None:
        """Forget it; the sink is not called again. Idempotent."""


class Detokeniser(Protocol):
    """One tokenizer process that has the role `detokenise`."""

    @property
    def name(self) -> str:
        """Its configured name."""

    def open_text(self, options: TextOptions, choice_index: int, sink: TextSink) -> TextStream:
        """Begin the text of one choice; where it breaks, the sink hears UnavailableError."""


class Tokenizer(Protocol):
    """One tokenizer process that has the role `render`."""

    @property
    def name(self) -> str:
        """Its configured name."""

    async def render(self, request: Renderable, timeout_s: float) -> Rendered:
        """Render the conversation. Raises ServiceError, naming the message or part at fault."""

    async def push_features(self, digests: Sequence[bytes], worker: str, timeout_s: float) -> None:
        """Send tensors to a worker. Raises FeaturesMissingError where they are gone: render again."""

    async def tokenize(
        self,
        text: str,
        timeout_s: float,
        parse_special_tokens: bool = False,
        add_special_tokens: bool = False,
    ) -> Sequence[int]:
        """Ids of a plain text. Raises ServiceError, naming `text`.

        Args:
            parse_special_tokens: control tokens spelt in it become their ids.
            add_special_tokens: put before it what the tokenizer puts before every text.
        """

    async def decode_tokens(
        self, token_ids: Sequence[int], skip_special_tokens: bool, timeout_s: float
    ) -> str:
        """Text of ids. Raises ServiceError, naming `token_ids` or one of them."""


@dataclass(frozen=True)
class WorkerStarted:
    """The engine has begun."""

    cached_tokens: int


@dataclass(frozen=True)
class WorkerTokens:
    """New ids of one choice, in order."""

    choice_index: int
    token_ids: Sequence[int]
    logprobs: Sequence[PositionLogprobs] = ()
    """One for each id, or none; without the tokens' bytes."""


@dataclass(frozen=True)
class WorkerFinished:
    """One choice has ended."""

    choice_index: int
    reason: Finish
    stop_token_id: int | None
    completion_tokens: int


WorkerEvent: TypeAlias = WorkerStarted | WorkerTokens | WorkerFinished


@dataclass(frozen=True)
class Load:
    """How busy a worker says it is, over all its callers."""

    running: int = 0
    """Generations running."""
    waiting: int = 0
    """Generations waiting in the engine."""
    kv_usage_ratio: float = 0.0
    """Share of the KV cache in use, 0 to 1."""


WorkerSink: TypeAlias = Callable[[WorkerEvent | ServiceError], None]
"""Called on the loop for every event of a generation, never from within `generate`; an error is the last call, and so
is the end of the last choice. A callback, because a task switch for each token of each generation is what a relay pays
most for."""


class WorkerStream(Protocol):
    """One generation on a worker."""

    def close(self) -> None:
        """Free the worker's slot; the sink is not called again. Idempotent."""


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
        self,
        request: GenerationRequest,
        rendered: Rendered,
        max_tokens: int,
        time_limit_s: float,
        sink: WorkerSink,
        sampled: Sequence[int] = (),
    ) -> WorkerStream:
        """Begin one generation, or go on behind the ids that another worker sampled for it; never waits."""


class Placement(Protocol):
    """Chooses processes among those that serve a model (a canonical name)."""

    @property
    def move_timeout_s(self) -> float:
        """Longest time without a worker, once a generation has begun; 0: it fails when its worker goes."""

    def moved(self) -> None:
        """A generation goes on on another worker; counted."""

    async def changed(self) -> None:
        """Return when a process has begun or ceased to serve."""

    def renderer(self, model: str, other_than: Tokenizer | None = None) -> Tokenizer:
        """A renderer. Raises UnavailableError where there is none, or none but `other_than`."""

    def worker(
        self, model: str, other_than: Worker | None = None, prefer: str = ""
    ) -> AbstractContextManager[Worker]:
        """A worker, which counts as loaded by one more generation until the context ends.

        Args:
            prefer: the name of the one that has the prompt's beginning in its cache; chosen unless it is too loaded.

        Raises UnavailableError where there is none, or none but `other_than`.
        """

    def open_text(
        self, model: str, options: TextOptions, choice_index: int, sink: TextSink
    ) -> TextStream:
        """Begin the text of one choice, which outlives any one detokeniser.

        Raises UnavailableError where none serves; later the sink hears it where none comes back in time.
        """
