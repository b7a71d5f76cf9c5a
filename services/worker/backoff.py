"""How long a crashed engine stays down before it is started again."""

FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 60.0
STEADY_S = 60.0
"""An engine that has served for so long was no part of a crash loop."""


class Backoff:
    """At once after the first crash; then 1 s, doubling to 60 s, until an engine has served for a minute."""

    def __init__(self) -> None:
        self._crash_count = 0

    def crashed(self, served_s: float) -> float:
        """Count a crash; returns the delay before the next start, in seconds.

        Args:
            served_s: how long the engine had served; 0 where its start failed.
        """
        if served_s >= STEADY_S:
            self._crash_count = 0
        self._crash_count += 1
        if self._crash_count == 1:
            return 0.0
        doublings = min(self._crash_count - 2, 10)
        return float(min(LONGEST_DELAY_S, FIRST_DELAY_S * 2**doublings))
