"""How a client behaves on a network that drops."""

from dataclasses import dataclass


@dataclass(frozen=True)
class NetworkPolicy:
    """All times in seconds."""

    ping_interval_s: float = 10.0
    """A connection pings after so long without traffic; 5 at least, or servers may take offence."""
    ping_timeout_s: float = 5.0
    """A ping without an answer for so long ends the connection."""
    heartbeat_interval_s: float = 5.0
    """Asked of the server, 1 to 60: a sign of life when nothing else is sent."""
    silence_limit_s: float = 12.0
    """A stream that brings nothing for so long, not even a heartbeat, is taken for dead: after a switch between Wi-Fi and
    cellular it hangs rather than fails, and only a fresh connection helps."""
    keep_s: int = 60
    """Asked of the server, 1 to 600: how long a generation is kept for us when the connection is gone."""
    connect_timeout_s: float = 5.0
    """Longest time to find out whether the server is there."""
    max_attempts: int = 8
    """In a row, without a single event between them; then the last error is raised."""
    first_pause_s: float = 0.1
    """Before the second attempt; doubled for each further one, and spread by a half at random."""
    last_pause_s: float = 3.0
    """Most of such a pause. A server's own advice (RetryInfo) is followed where it is longer."""
