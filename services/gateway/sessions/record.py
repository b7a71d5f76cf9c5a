"""What is kept of a session. Everything in it is immutable: a change makes a new record, so that none is ever half done."""

from dataclasses import dataclass, field, replace
from enum import StrEnum


class CacheScope(StrEnum):
    """Whom a session shares its prefix cache with; the names of hotline.v1.CacheScope without the prefix."""

    OWNER = "OWNER"
    SESSION = "SESSION"


class ImageRetention(StrEnum):
    """Which images of earlier turns stay in the prompt; the names of hotline.v1.ImageRetention without the prefix."""

    NONE = "NONE"
    LAST = "LAST"
    ALL = "ALL"


@dataclass(frozen=True, slots=True)
class HistoryPolicy:
    """How much of the past stays in the prompt."""

    max_history_tokens: int = 0
    """When the history is longer, whole turns drop from the front to half of it. 0: the model's context."""
    images: ImageRetention = ImageRetention.LAST
    image_count: int = 1
    """With LAST: how many images a prompt shows, those of the new turn counted first; all of the new turn are shown."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message of the client's."""

    data: bytes
    """A serialised hotline.v1.Message whose images are media digests."""
    media: tuple[bytes, ...] = ()
    """The digests (SHA-256, 32 bytes) of its images, in their order."""
    is_system: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """What the client said, and what the model answered.

    The prompt of a turn is, for each turn up to it: the first `kept_before` ids of the answer before, then `prompt_ids`.
    """

    messages: tuple[StoredMessage, ...]
    prompt_ids: bytes
    """The rendered messages, generation prompt included; unsigned 32-bit integers in the machine's order."""
    features: tuple[bytes, ...]
    """Serialised hotline.v1.FeaturePlacement, offsets counted from the begin of `prompt_ids`; one for each image that is
    still shown."""
    shown_media: tuple[bytes, ...]
    """The digests of the images that are still shown, in their order."""
    kept_before: int
    """So many ids of the answer before stand in front; 0 in the first turn that is kept."""
    answer_ids: bytes
    """As they were sampled, the end included."""
    stop_match: str
    """The stop string that ended the answer; empty: none did."""
    answer_prefix: str
    """What the prompt's end says already in the model's name."""
    enable_thinking: bool | None = None
    """As it was asked for."""


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation of one owner with one model. Times are Unix seconds."""

    session_id: bytes
    """16 random bytes; clients see 32 hexadecimal digits."""
    owner: str
    model: str
    """Canonical name."""
    create_time_s: float
    expire_time_s: float
    """When it ends if nothing touches it: the idle TTL after the last touch, at most the absolute TTL after its begin."""
    idle_ttl_s: float
    absolute_ttl_s: float
    cache_scope: CacheScope = CacheScope.OWNER
    policy: HistoryPolicy = HistoryPolicy()
    salt: str = ""
    """Not empty: the cache salt that it has to itself, see cache_salt.session_salt."""
    preamble: tuple[StoredMessage, ...] = ()
    """What stands before every turn and is never dropped: the messages it was opened with, and the system messages that
    its first turn began with."""
    turns: tuple[Turn, ...] = ()
    """Those that are kept, oldest first."""
    turn_count: int = 0
    """Turns committed since it began or was made to forget."""
    options_digest: bytes = b""
    """Of the tools and template variables that the history was rendered with; with others it is rendered anew."""
    renders_whole: bool = False
    """The model's template cannot go on after an answer: every turn renders all messages, and `prompt_ids` are empty."""
    worker: str = ""
    """Which worker had the last turn: it holds the prefix."""
    version: int = 0
    """Counts changes; a change made from an older record is refused. Touches do not count."""
    media: frozenset[bytes] = field(default=frozenset())
    """Digests of all images that came in this session: those it may name."""

    @property
    def history_tokens(self) -> int:
        """Tokens that the next prompt begins with, as far as they are rendered."""
        kept = sum(len(turn.prompt_ids) // 4 + turn.kept_before for turn in self.turns)
        return kept + (len(self.turns[-1].answer_ids) // 4 if self.turns else 0)

    def touched(self, now_s: float) -> "Session":
        """With its idle TTL begun again."""
        end_s = self.create_time_s + self.absolute_ttl_s
        return replace(self, expire_time_s=min(now_s + self.idle_ttl_s, end_s))
