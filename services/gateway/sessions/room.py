"""How many sessions there may be."""

from dataclasses import dataclass

from services.runtime.errors import OverloadedError

RETRY_DELAY_S = 10.0


@dataclass(frozen=True)
class SessionRoom:
    """Bounds of a store."""

    max_sessions: int
    """In all."""
    max_per_owner: int
    """Of one owner."""

    def check(self, held: int, owned: int) -> None:
        """Raises OverloadedError where one more is too many.

        Args:
            held: sessions that are kept.
            owned: those of the one who wants another.
        """
        if owned >= self.max_per_owner:
            raise OverloadedError(
                f"You have {owned} sessions; the limit is {self.max_per_owner}. Delete some, or let them expire.",
                metadata={"limit": "max_per_owner"},
                retry_delay_s=RETRY_DELAY_S,
            )
        if held >= self.max_sessions:
            raise OverloadedError(
                f"{held} sessions are kept; the limit is {self.max_sessions}.",
                metadata={"limit": "max_sessions"},
                retry_delay_s=RETRY_DELAY_S,
            )
