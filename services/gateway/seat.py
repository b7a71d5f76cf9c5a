"""What one generation holds of the gateway's and of its key's limits, from before its request is read to its end."""

import math
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Protocol

from services.gateway.admission_limits import AdmissionLimits
from services.gateway.caller import Caller
from services.gateway.fair_queue import Waiter
from services.gateway.interfaces import GenerationRequest
from services.gateway.key_allowance import KeyAllowance
from services.gateway.places import Places
from services.runtime.errors import RateLimitedError

_MAX_TOKENS = "sampling.max_tokens"
BYTES_PER_TOKEN, MOST_GUESSED_TOKENS = 4, 4096
"""Until it is rendered, a prompt counts as a token for each 4 bytes of its message, and as at most so many: what is larger
holds a screenshot, which has some 3,100."""


class Bounds(Protocol):
    """What a seat needs of the gateway's admission."""

    limits: AdmissionLimits
    places: Places

    def hold_tokens(self, more: int, own: int) -> None:
        """Count so many more tokens, or fewer. Raises OverloadedError."""

    def leave_seat(self) -> None:
        """One seat is free."""

    def counted(self) -> AbstractContextManager[None]:
        """Counts refusals that pass."""


class Seat:
    """One generation's seat.

    Args:
        size_bytes: of the message that asked for it.
        clock: that of deadlines.

    Raises RateLimitedError where the key's concurrency is reached.
    """

    def __init__(
        self,
        bounds: Bounds,
        caller: Caller,
        allowance: KeyAllowance | None,
        size_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        self._bounds, self._caller, self._allowance = bounds, caller, allowance
        self._size_bytes, self._clock = size_bytes, clock
        self._begun_s = allowance.begin() if allowance is not None else 0.0
        self._held = self._taken = self._used = 0
        self._waiter: Waiter | None = None
        self._closed = False
        self.paid_request = False
        """One of the key's requests was counted for it."""

    @property
    def ahead(self) -> int:
        """Generations ahead of it while it waits for a place; 0 before and after."""
        waiter = self._waiter
        if waiter is None or not waiter.queued:
            return 0
        return self._bounds.places.queue.ahead_of(waiter)

    @asynccontextmanager
    async def place(self, request: GenerationRequest) -> AsyncGenerator[int, None]:
        """Wait for a place and hold it; yields how many others were given one meanwhile.

        Raises OverloadedError, RateLimitedError; InvalidArgumentError for more tokens than the key can ever have.
        """
        bounds = self._bounds
        guess = min(self._size_bytes // BYTES_PER_TOKEN, MOST_GUESSED_TOKENS)
        cost = guess + request.choice_count * self._output_tokens(request, math.inf)
        with bounds.counted():
            self._take_tokens(request.choice_count * (request.max_tokens or 1), _MAX_TOKENS)
            self._hold_tokens(cost)
            flow, limits = self._caller.key_id or self._caller.owner, self._caller.limits
            self._waiter = Waiter(flow, limits.weight, cost, request.priority)
            limit_s = request.deadline_s - self._clock()
            limit_s = min(limit_s, bounds.limits.ttft_objective_s or math.inf)
            patience_s = bounds.limits.queue_timeout_s
            async with bounds.places.hold(self._waiter, limit_s, patience_s) as ahead:
                yield ahead

    def rendered(self, request: GenerationRequest, prompt_tokens: int, max_tokens: int) -> None:
        """From now on count what is known; raises as `place` does.

        Args:
            max_tokens: of each choice, the room left where the request names none.
        """
        room = self._key_room(request, prompt_tokens, max_tokens)
        cost = prompt_tokens + request.choice_count * self._output_tokens(request, room)
        by_prompt = self._allowance is not None and prompt_tokens >= self._allowance.most_tokens
        self._take_tokens(cost, "messages" if by_prompt else _MAX_TOKENS)
        self._hold_tokens(cost)
        if self._waiter is not None:
            self._bounds.places.queue.correct(self._waiter, cost)

    def used(self, tokens: int) -> None:
        """What it came to, prompt and answers; the key gets back the rest, or owes it."""
        self._used = tokens

    def close(self) -> None:
        """Give everything back. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._hold_tokens(0)
        if self._allowance is not None:
            self._allowance.settle_tokens(self._taken, self._used)
            self._allowance.end(self._begun_s)
        self._bounds.leave_seat()

    def _output_tokens(self, request: GenerationRequest, room: float) -> int:
        asked = request.max_tokens or self._bounds.limits.default_output_tokens
        return int(min(asked, room))

    def _key_room(self, request: GenerationRequest, prompt_tokens: int, room: int) -> int:
        """What an answer without max_tokens is taken for at most: a key with a small bucket need not say one."""
        if self._allowance is None or request.max_tokens is not None:
            return room
        left = (self._allowance.most_tokens - prompt_tokens) // request.choice_count
        return int(min(room, max(left, 1)))

    def _take_tokens(self, count: int, field: str) -> None:
        if self._allowance is None:
            return
        try:
            self._allowance.take_tokens(count, self._taken, field)
        except RateLimitedError:
            if self.paid_request:  # it is not to pay with both
                self.paid_request = False
                self._allowance.give_back_request()
            raise
        self._taken = count

    def _hold_tokens(self, count: int) -> None:
        self._bounds.hold_tokens(count - self._held, self._held)
        self._held = count
