"""One generation that readers may leave, and come back to."""

from collections.abc import Callable

from services.gateway.events import Failed, Finish
from services.gateway.replay import Reader, Replay
from services.gateway.retention import Later, Retention, RetentionObserver, Timer
from services.runtime.error_table import Reason

MAX_READERS = 8
"""At once; one more takes the place of one that hangs."""


class Retained:
    """Who reads a generation, and what happens when nobody does.

    Args:
        cancel: ends the generation.
        expire: forgets it; called when nobody came back in time after its end.
    """

    def __init__(
        self,
        retention: Retention,
        replay: Replay,
        watcher: RetentionObserver,
        later: Later,
        cancel: Callable[[], object],
        expire: Callable[[], None],
    ) -> None:
        self.retention, self.replay = retention, replay
        self._watcher, self._later = watcher, later
        self._cancel, self._expire = cancel, expire
        self._readers: list[Reader] = []
        self._timer: Timer | None = None
        self._runs, self._was_left = True, False

    @property
    def may_begin_anew(self) -> bool:
        """Whether the same request should begin a new generation: this one's end is not an answer to it.

        It was cancelled because its reader went, or failed in a way that it may be tried again.
        """
        end = self.replay.end
        if isinstance(end, Failed):
            return end.error.row.retryable
        if end is None:
            return self._was_left
        return self._was_left and any(one.reason is Finish.CANCELLED for one in end.choices)

    @property
    def leaves_nothing(self) -> bool:
        """Whether nothing of it is worth keeping: it ended before it was accepted, and not by Cancel."""
        end = self.replay.end
        if self.replay.was_accepted or not isinstance(end, Failed):
            return False
        return self._was_left or end.error.reason is not Reason.CANCELLED

    def attach(self, after: int) -> Reader:
        """A new reader. Raises InvalidArgumentError, GenerationExpiredError as Replay.check does."""
        reader = self.replay.reader(after)
        self._stop_timer()
        if len(self._readers) >= MAX_READERS:
            hanging = next((one for one in self._readers if not one.is_waiting), self._readers[0])
            self._readers.remove(hanging)
            hanging.displace()
        self._readers.append(reader)
        return reader

    def detach(self, reader: Reader) -> bool:
        """A reader goes, perhaps with the end; whether that cancels the generation."""
        if reader in self._readers:
            self._readers.remove(reader)
        if self._readers:
            return False
        if not self._runs:
            self._set_timer(self.retention.replay_s, self._expire)
        elif self.replay.end is None:
            return self._left()
        return False

    def ended(self) -> None:
        """The generation is over, and holds nothing any more."""
        self._runs = False
        if not self._readers:
            self._set_timer(self.retention.replay_s, self._expire)

    def close(self) -> None:
        """Nothing happens later any more. Idempotent."""
        self._stop_timer()

    def _left(self) -> bool:
        if not self.retention.keep_s:
            self._was_left = True
            self._cancel()
            return True
        self._watcher.detached()
        self._set_timer(self.retention.keep_s, self._abandon)
        return False

    def _abandon(self) -> None:
        self._timer = None
        if self._runs and self.replay.end is None:
            self._was_left = True
            self._watcher.abandoned()
            self._cancel()

    def _set_timer(self, delay_s: float, act: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self._later(delay_s, act)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
