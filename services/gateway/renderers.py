"""Work for a renderer that another one can do as well, where the first one goes or refuses."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

from services.gateway.interfaces import Placement, Tokenizer
from services.runtime.errors import OverloadedError, UnavailableError
from services.runtime.logs import get_logger

_log = get_logger()

LEAST_TIMEOUT_S = 0.001
Answer = TypeVar("Answer")
Ask: TypeAlias = Callable[[Tokenizer, float], Awaitable[Answer]]
"""Asks this renderer, with so many seconds for it."""


class Renderers:
    """The renderers of one model.

    Rendering, tokenising and decoding change nothing but a renderer's bounded store of features, so they may be done twice.

    Args:
        clock: monotonic, in seconds.
    """

    def __init__(self, placement: Placement, model: str, clock: Callable[[], float]) -> None:
        self._placement, self._model, self._clock = placement, model, clock

    async def ask(self, ask: Ask[Answer], limit_s: float) -> Answer:
        """Ask the least loaded renderer; where that one goes or refuses, once another, if there is one.

        Args:
            limit_s: for both together.
        """
        deadline_s = self._clock() + limit_s
        first = self._placement.renderer(self._model)
        try:
            return await ask(first, limit_s)
        except (UnavailableError, OverloadedError) as error:
            return await self.ask_another(ask, first, error, deadline_s)

    async def ask_another(
        self,
        ask: Ask[Answer],
        first: Tokenizer,
        error: UnavailableError | OverloadedError,
        deadline_s: float,
    ) -> Answer:
        """Ask another one than `first`, which failed with `error`; raises that where there is none."""
        try:
            second = self._placement.renderer(self._model, other_than=first)
        except UnavailableError:
            raise error from None
        _log.info(
            "render moves", failed=first.name, reason=error.reason.value, upstream=second.name
        )
        return await ask(second, self.remaining_s(deadline_s))

    def remaining_s(self, deadline_s: float) -> float:
        """Until a time on the clock; at least some."""
        return max(deadline_s - self._clock(), LEAST_TIMEOUT_S)
