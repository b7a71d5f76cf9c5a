"""What is kept of a generation whose reader goes, and for how long."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

DEFAULT_KEEP_S = 30.0
"""Where the client names the generation and says no more."""


class Timer(Protocol):
    """What will happen later."""

    def cancel(self) -> None:
        """It shall not. Idempotent."""


Later: TypeAlias = Callable[[float, Callable[[], None]], Timer]
"""Calls the function on the loop after so many seconds, as loop.call_later does."""


@dataclass(frozen=True)
class Retention:
    """A generation that can be joined, resumed and replayed."""

    fingerprint: bytes
    """Of the request: another one under the same id is a conflict."""
    keep_s: float
    """How long it runs on without a reader; 0: not at all."""
    replay_s: float
    """How long it is kept after its end, and after its last reader went."""
    form: Any = None
    """rest_form.RestForm: how its answer is written for who reads it over REST."""


@dataclass(frozen=True)
class RetentionLimits:
    """Bounds of one gateway."""

    max_keep_s: float = 600.0
    """The most that a request may ask for, in seconds."""
    max_replay_bytes: int = 1024 * 1024
    """Of one generation: what some reader has had."""
    max_unread_bytes: int = 1024 * 1024
    """Of one generation: what no reader has had; beyond it the generation ends."""
    max_kept_bytes: int = 256 * 1024 * 1024
    """Of all generations that have ended; the oldest goes first."""
    max_kept_count: int = 4096
    """Generations that have ended; the oldest goes first."""

    @property
    def default_keep_s(self) -> float:
        """Where the client says nothing."""
        return min(DEFAULT_KEEP_S, self.max_keep_s)


class RetentionObserver(Protocol):
    """Hears of readers that come back, and of those that do not."""

    def resumed(self) -> None:
        """A reader came back with a cursor."""

    def joined(self) -> None:
        """The same request came again."""

    def detached(self) -> None:
        """The last reader of a running generation went, and it runs on."""

    def abandoned(self) -> None:
        """Nobody came back in time: the generation is cancelled."""

    def expired(self) -> None:
        """A reader came too late."""

    def too_slow(self) -> None:
        """A generation ended because its reader did not keep up."""


class Unwatched:
    """Nobody listens; see RetentionObserver."""

    def resumed(self) -> None:
        """See RetentionObserver."""

    def joined(self) -> None:
        """See RetentionObserver."""

    def detached(self) -> None:
        """See RetentionObserver."""

    def abandoned(self) -> None:
        """See RetentionObserver."""

    def expired(self) -> None:
        """See RetentionObserver."""

    def too_slow(self) -> None:
        """See RetentionObserver."""
