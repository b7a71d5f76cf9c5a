"""What is kept of one choice's log-probabilities, in case its text has to be rebuilt."""

from collections import deque
from collections.abc import Sequence

from services.gateway.events import PositionLogprobs


class KeptLogprobs:
    """Those that came in and have not come back with their text; one for each id, or none at all.

    They come back in order, but not all of them: those of thoughts, tags and stop strings are left out. Ids tell which
    it was, and of several that could have been, the first one is assumed; so too much may be kept, but never too little.
    At most max_tokens of them are kept.
    """

    def __init__(self) -> None:
        self._waiting: deque[PositionLogprobs | None] = deque()
        self._first = 0
        self._told = self._skip = 0

    def add(self, logprobs: Sequence[PositionLogprobs | None]) -> None:
        """Those of the next ids."""
        self._waiting.extend(logprobs)

    def again(self) -> Sequence[PositionLogprobs | None]:
        """One for each id from the first on, None where it is not needed any more; empty where there are none.

        As many as have come back come once more then.
        """
        self._skip = self._told
        return [*(None,) * self._first, *self._waiting]

    def new(
        self, told: Sequence[PositionLogprobs], token_ids: Sequence[int]
    ) -> Sequence[PositionLogprobs]:
        """Those of `told`, the next ones that came back, that had not come back before.

        Args:
            token_ids: all ids so far.
        """
        skipped = min(self._skip, len(told))
        self._skip -= skipped
        new = told[skipped:]
        self._told += len(new)
        for position in new:
            self._drop_until(position.sampled.token_id, token_ids)
        return new

    def _drop_until(self, token_id: int, token_ids: Sequence[int]) -> None:
        while self._waiting:
            self._waiting.popleft()
            self._first += 1
            if token_ids[self._first - 1] == token_id:
                return
