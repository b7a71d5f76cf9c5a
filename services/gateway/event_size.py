"""What events take in memory while they wait, or are kept."""

from sys import getsizeof

from services.gateway.events import Event, Reasoning, Text, ToolCall

LOGPROB_BYTES = 400
"""What the log-probabilities of one token take, with 20 likeliest ones beside it."""
_STR_BYTES = getsizeof("")


def size_bytes(event: Event) -> int:
    """Text and log-probabilities of one event, about; 0 for events without."""
    if isinstance(event, Text):
        return getsizeof(event.text) - _STR_BYTES + len(event.logprobs) * LOGPROB_BYTES
    if isinstance(event, Reasoning):
        return getsizeof(event.text) - _STR_BYTES
    return getsizeof(event.arguments) - _STR_BYTES if isinstance(event, ToolCall) else 0
