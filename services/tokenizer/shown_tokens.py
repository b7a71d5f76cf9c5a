"""Which tokens a text shows: each is told with the output that shows the last character of its text."""

from collections import deque
from collections.abc import Iterable
from typing import Protocol


class TokenLogprob(Protocol):
    """One token and its log-probability."""

    token_id: int
    token: bytes
    """Its bytes, filled in here."""


class PositionLogprobs(Protocol):
    """What came with one id, and goes back with its text."""

    @property
    def sampled(self) -> TokenLogprob:
        """The id's own."""

    @property
    def top(self) -> Iterable[TokenLogprob]:
        """The likeliest tokens there."""


class ShownTokens:
    """The tokens of one text that wait for their last character, by its place in all that was decoded.

    What is shown of a text is a part of what was decoded, in the same order: what comes before it (a thought, tags) or
    after it (a stop string) takes its tokens along. A token that ends inside a character waits for the whole of it.
    """

    def __init__(self) -> None:
        self._decoded = self._released = 0
        self._waiting: deque[tuple[int, PositionLogprobs]] = deque()

    def decoded(
        self, entry: PositionLogprobs | None, text_length: int, ends_inside_character: bool
    ) -> None:
        """The next token made so many characters. `entry` is None where it has no text at all, such as a control token."""
        self._decoded += text_length
        if entry is not None:
            self._waiting.append((self._decoded + ends_inside_character, entry))

    def released(self, released: int, held: int, shown: int) -> list[PositionLogprobs]:
        """The tokens to tell now.

        Args:
            released: characters that are no longer looked at for stop strings, since the last call.
            held: of all that was released, characters at its end that may still be shown.
            shown: characters that are shown now; they are the last ones before those.
        """
        self._released += released
        settled = self._released - held
        told = []
        while self._waiting and self._waiting[0][0] <= settled:
            end, entry = self._waiting.popleft()
            if end > settled - shown:
                told.append(entry)
        return told
