"""What a generation needs of the session that it is a turn of, and of whatever makes its prompt."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from services.gateway.events import ChoiceEnd
from services.gateway.interfaces import Rendered
from services.gateway.renderers import Renderers


class PromptRendering(Protocol):
    """A prompt on its way through the renderers, some of which may go. Methods raise ServiceError."""

    async def render(self) -> Rendered:
        """Make the prompt."""

    async def push(self, rendered: Rendered, worker: str) -> Rendered:
        """Have a renderer send the prompt's features to a worker (by name); the prompt as it is then."""


class TurnOfSession(Protocol):
    """One turn of a session."""

    @property
    def session_name(self) -> str:
        """The session's id, as clients see it."""

    @property
    def worker(self) -> str:
        """Which worker had the turn before, and holds the prefix; empty: none."""

    @property
    def cache_salt(self) -> str:
        """What its cache entries are shared under; empty: the owner's own."""

    def hold(self) -> AbstractAsyncContextManager[None]:
        """Keep other turns of the session out. Raises SessionBusyError, SessionNotFoundError."""

    def rendering(
        self, renderers: Renderers, clock: Callable[[], float], timeout_s: float
    ) -> PromptRendering:
        """How this turn's prompt is made, while it is held."""

    @property
    def committed(self) -> bool:
        """It is part of the history."""

    async def commit(self, end: ChoiceEnd, answer_ids: Sequence[int], worker: str) -> None:
        """Make the turn part of the history, where it ended so that it can be; `committed` tells.

        Args:
            answer_ids: as they were sampled, as far as the text consumed them.
            worker: the one that had it.
        """
