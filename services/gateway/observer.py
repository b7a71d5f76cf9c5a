"""Who hears of every generation: metrics, later traces. Called on the loop, for every event; must be quick."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from services.gateway.events import Event

EventSink: TypeAlias = Callable[[Event], None]
"""Hears of every event of one generation, in order, before pieces are merged; the terminal one exactly once."""


class Observer(Protocol):
    """Hears of the generations of one gateway."""

    def begin(self, model: str) -> EventSink:
        """A generation is asked for, of this model (a canonical name); what is returned hears of the rest."""


class Unobserved:
    """Nobody listens; see Observer."""

    def begin(self, model: str) -> EventSink:
        """See Observer."""
        return ignore


def ignore(event: Event) -> None:
    """See EventSink."""
