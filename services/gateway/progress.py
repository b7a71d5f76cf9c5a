"""Where a generation is, as its events tell."""

from services.gateway.events import (
    Accepted,
    Action,
    Event,
    Failed,
    Finished,
    Reasoning,
    State,
    Text,
    ToolCall,
)


def state_after(state: State, event: Event) -> State:
    """The state once an event was told."""
    if isinstance(event, Text | Reasoning | ToolCall | Action):
        return State.DECODING
    if isinstance(event, Accepted):
        return State.PREFILL
    return State.ENDED if isinstance(event, Finished | Failed) else state
