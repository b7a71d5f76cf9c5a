"""A store that does not answer, whichever it is."""

from services.runtime.errors import UnavailableError

RETRY_DELAY_S = 1.0


def away() -> UnavailableError:
    """In words that say nothing of where it is."""
    return UnavailableError("The store of sessions does not answer.", retry_delay_s=RETRY_DELAY_S)
