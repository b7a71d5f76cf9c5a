"""A whole answer, put together from its events."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import json_format
from hotline.v1 import generation_pb2


@dataclass
class Answer:
    """What came of a generation with one choice; complete once `finish_reason` is set."""

    generation_id: str = ""
    text: str = ""
    reasoning: str = ""
    """With split_reasoning: the thought."""
    action: str = ""
    """The phone action's name; empty: the answer is none."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """The action's, by name."""
    finish_reason: str = ""
    """STOP, STOP_SEQUENCE, LENGTH, TIME_LIMIT, CANCELLED or TOOL_CALLS; empty: not ended yet."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    turn_committed: bool = False
    """In a session: it is part of the history."""

    def add(self, event: generation_pb2.GenerationEvent) -> None:
        """Take one event of choice 0."""
        kind = event.WhichOneof("event")
        if kind == "text":
            self.text += event.text.text
        elif kind == "reasoning":
            self.reasoning += event.reasoning.text
        elif kind == "accepted":
            self.generation_id = event.accepted.generation_id
        elif kind == "action":
            self.action = event.action.name
            self.arguments = json_format.MessageToDict(event.action.arguments)
        elif kind == "finished":
            self._end(event.finished)

    def _end(self, finished: generation_pb2.FinishedEvent) -> None:
        name = generation_pb2.FinishReason.Name(finished.reason)
        self.finish_reason = name.removeprefix("FINISH_REASON_")
        self.prompt_tokens = finished.usage.prompt_tokens
        self.completion_tokens = finished.usage.completion_tokens
        self.cached_tokens = finished.usage.cached_tokens
        self.turn_committed = finished.turn_committed
