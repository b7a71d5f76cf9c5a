"""What a replay is made of: runs of text, which can be cut again wherever a reader stood, and single events."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from services.gateway.event_size import size_bytes
from services.gateway.events import Event, Numbered, PositionLogprobs, Reasoning, Text, ToolCall
from services.gateway.mailbox import MERGED_CHARACTERS, MERGED_LOGPROBS

ENTRY_BYTES = 512
"""What an entry takes besides its text."""
_PIECE_BYTES = 16
_JOINED_PIECES = 64

Piece: TypeAlias = Text | Reasoning | ToolCall
"""Events that are merged."""


class Single:
    """An event that is never merged."""

    def __init__(self, sequence: int, event: Event) -> None:
        self._numbered = Numbered(sequence, event)
        self.last = sequence
        self.size_bytes = ENTRY_BYTES

    def holds(self, sequence: int) -> bool:
        """Whether it ends there."""
        return sequence == self.last

    def after(self, sequence: int) -> Numbered:
        """It, for a reader that does not have it."""
        return self._numbered


class Run:
    """Neighbouring pieces of one text: joined, with the places where readers may have stood.

    It has MERGED_CHARACTERS and one piece at most: what is dropped is dropped by runs.
    """

    def __init__(self, sequence: int, piece: Piece) -> None:
        self._head = piece
        self._texts: list[str] = []
        self._logprobs: list[PositionLogprobs] = []
        # Of each place: its sequence number, and the characters and log-probabilities before it.
        self._sequences, self._ends, self._logprob_ends = array("Q"), array("I"), array("I")
        self._length = 0
        self.last = 0
        self.size_bytes = ENTRY_BYTES
        self.append(sequence, piece, merged=False)

    def takes(self, event: Event) -> bool:
        """Whether an event continues it, and there is room."""
        head = self._head
        if type(event) is not type(head) or self._length >= MERGED_CHARACTERS:
            return False
        if isinstance(event, ToolCall) and isinstance(head, ToolCall):
            return (event.choice_index, event.index) == (head.choice_index, head.index)
        if isinstance(event, Text):
            if len(self._logprobs) + len(event.logprobs) > MERGED_LOGPROBS:
                return False
            return event.choice_index == head.choice_index
        return isinstance(event, Reasoning) and event.choice_index == head.choice_index

    def append(self, sequence: int, piece: Piece, merged: bool) -> int:
        """Add a piece; returns the bytes that this takes.

        Args:
            merged: nobody has the piece before it, so that nobody can stand between the two.
        """
        text = piece.arguments if isinstance(piece, ToolCall) else piece.text
        self._texts.append(text)
        if len(self._texts) > _JOINED_PIECES:
            self._join()
        self._length += len(text)
        if isinstance(piece, Text):
            self._logprobs.extend(piece.logprobs)
        grown = size_bytes(piece)
        self.last = sequence
        if merged:
            self._sequences[-1], self._ends[-1] = sequence, self._length
            self._logprob_ends[-1] = len(self._logprobs)
        else:
            self._sequences.append(sequence)
            self._ends.append(self._length)
            self._logprob_ends.append(len(self._logprobs))
            grown += _PIECE_BYTES
        self.size_bytes += grown
        return grown

    @property
    def choice_index(self) -> int:
        """Of which output."""
        return self._head.choice_index

    @property
    def is_text(self) -> bool:
        """Whether it is text of the answer."""
        return isinstance(self._head, Text)

    def characters(self, until: int) -> int:
        """Characters up to a place."""
        place = bisect_right(self._sequences, until)
        return self._ends[place - 1] if place else 0

    def holds(self, sequence: int) -> bool:
        """Whether a reader may have stood there."""
        place = bisect_left(self._sequences, sequence)
        return place < len(self._sequences) and self._sequences[place] == sequence

    def after(self, sequence: int) -> Numbered:
        """Everything after a place, as one event."""
        place = bisect_right(self._sequences, sequence)
        begin = self._ends[place - 1] if place else 0
        logprobs = self._logprobs[self._logprob_ends[place - 1] if place else 0 :]
        return Numbered(self.last, self._piece(place == 0, self._text_from(begin), logprobs))

    def _piece(self, whole: bool, text: str, logprobs: Sequence[PositionLogprobs]) -> Piece:
        head = self._head
        if isinstance(head, Text):
            return Text(head.choice_index, text, tuple(logprobs))
        if isinstance(head, Reasoning):
            return Reasoning(head.choice_index, text)
        if whole:
            return replace(head, arguments=text)
        return ToolCall(head.choice_index, head.index, arguments=text)

    def _text_from(self, begin: int) -> str:
        newest = self._texts[-1]
        if len(newest) == self._length - begin:  # a reader that keeps up
            return newest
        self._join()
        return self._texts[0][begin:]

    def _join(self) -> None:
        self._texts = ["".join(self._texts)]
