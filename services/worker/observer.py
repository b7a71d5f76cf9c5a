"""Who hears of what the engine does: metrics. Called on the loop, for every step; must be quick."""

from typing import Protocol

from services.runtime.error_table import Reason
from services.worker.engine import Step


class StepObserver(Protocol):
    """Hears of all generations that were admitted."""

    def step(self, step: Step) -> None:
        """A step of one of them, before its caller gets it."""

    def failed(self, reason: Reason) -> None:
        """One of them ended with an error, all choices together."""


class Unobserved:
    """Nobody listens; see StepObserver."""

    def step(self, step: Step) -> None:
        """See StepObserver."""

    def failed(self, reason: Reason) -> None:
        """See StepObserver."""
