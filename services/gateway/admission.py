"""What the gateway takes in: bounded in generations, bytes and tokens, and by the limits of the caller's key.

A call holds the bytes of its message from before they are decoded, and a seat. Each of its generations has a seat: it waits
there for a place (places.py), runs there, and holds its tokens: first as they are guessed, exactly once it is rendered, at
the end as it used them. Whoever finds a bound reached is refused at once, before anything of the request was read.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from services.gateway.admission_limits import AdmissionLimits
from services.gateway.caller import Caller
from services.gateway.key_allowance import KeyAllowance, KeyAllowances
from services.gateway.places import Places
from services.gateway.seat import Seat
from services.runtime.errors import OverloadedError, RateLimitedError

Refused: TypeAlias = Callable[[str], None]
"""Hears of every refusal, by the name of the limit that was reached."""


class Entry:
    """What one call holds. `close` gives it back.

    Args:
        joins: it asks for a generation that runs, and needs no seat unless that has ended meanwhile.
    """

    def __init__(
        self, admission: "Admission", caller: Caller, size_bytes: int, joins: bool = False
    ) -> None:
        self._admission, self.caller, self.size_bytes = admission, caller, size_bytes
        self._is_admitted = False
        self._reserved = None if joins else self._admitted()

    @property
    def most_seats(self) -> float:
        """Generations that a call of this caller could have at once if nobody else had any."""
        limits = self._admission.limits
        return min(limits.max_running + limits.max_waiting, self.caller.limits.max_concurrent)

    def seat(self) -> Seat:
        """A seat for one more generation of this call: first the one that it has. Raises as `Admission.enter` does."""
        seat, self._reserved = self._reserved, None
        if seat is None and not self._is_admitted:
            return self._admitted()
        return seat or self._admission.take_seat(self.caller, self.size_bytes)

    def close(self) -> None:
        """Give back a seat that was not used; the others end with their generations. Idempotent."""
        seat, self._reserved = self._reserved, None
        if seat is not None:
            seat.close()

    def _admitted(self) -> Seat:
        admission = self._admission
        admission.check(self.caller)
        with admission.counted():
            seat = admission.take_seat(self.caller, self.size_bytes)
        allowance = admission.allowance(self.caller)
        if allowance is not None:
            allowance.take_request()
            seat.paid_request = True
        self._is_admitted = True
        return seat


class Admission:
    """The admission of one gateway. All of it is on the event loop; nothing waits but for a place.

    Args:
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        limits: AdmissionLimits,
        clock: Callable[[], float],
        refused: Refused | None = None,
    ) -> None:
        self.limits, self._clock, self._refused = limits, clock, refused
        self.places = Places(limits.max_running, limits.priority_step_s, clock)
        self._allowances = KeyAllowances(clock)
        self.seat_count = self.held_bytes = self.held_tokens = 0
        """What is held now; of the bounds in `limits`."""

    @property
    def running_count(self) -> int:
        """Generations that have a place."""
        return self.places.running_count

    @property
    def waiting_count(self) -> int:
        """Generations that wait for a place."""
        return len(self.places.queue)

    def allowance(self, caller: Caller) -> KeyAllowance | None:
        """What the caller's key has taken of its limits; None where it has none."""
        return self._allowances.of(caller)

    def check(self, caller: Caller) -> None:
        """Raises what `enter` would raise for this caller whatever its message; takes nothing."""
        with self.counted():
            allowance = self.allowance(caller)
            if allowance is not None:
                allowance.check()
            self._check_seats()

    @contextmanager
    def enter(self, caller: Caller, size_bytes: int, joins: bool = False) -> Iterator[Entry]:
        """A call that will generate comes in.

        Args:
            size_bytes: of its message, which is not decoded yet.
            joins: see Entry.

        Raises:
            OverloadedError: a bound of the gateway is reached.
            RateLimitedError: a limit of the caller's key is.
        """
        if not joins:
            self.check(caller)
        with self.hold_bytes(size_bytes):
            entry = Entry(self, caller, size_bytes, joins)
            try:
                yield entry
            finally:
                entry.close()

    @contextmanager
    def hold_bytes(self, size_bytes: int) -> Iterator[None]:
        """Hold the bytes of a message that is to be decoded. Raises OverloadedError."""
        with self.counted():
            held, limit = self.held_bytes + size_bytes, self.limits.max_held_bytes
            if held > limit:
                raise self._overloaded(
                    "max_held_bytes",
                    f"With {size_bytes} bytes more, {held} bytes of requests would be held; the limit is {limit}.",
                )
        self.held_bytes += size_bytes
        try:
            yield
        finally:
            self.held_bytes -= size_bytes

    def keep_bytes(self, size_bytes: int) -> None:
        """Hold a message's bytes on after its call, until `free_bytes`: what it asked for still runs."""
        self.held_bytes += size_bytes

    def free_bytes(self, size_bytes: int) -> None:
        """See `keep_bytes`."""
        self.held_bytes -= size_bytes

    def take_seat(self, caller: Caller, size_bytes: int = 0) -> Seat:
        """A seat, until its `close`. Raises as `enter` does."""
        self._check_seats()
        seat = Seat(self, caller, self.allowance(caller), size_bytes, self._clock)
        self.seat_count += 1
        return seat

    def leave_seat(self) -> None:
        """See Seat.close."""
        self.seat_count -= 1

    def hold_tokens(self, more: int, own: int) -> None:
        """Count so many more tokens, or fewer, of a seat that holds `own`. Raises OverloadedError; one alone always fits."""
        limit, others = self.limits.max_held_tokens, self.held_tokens - own
        if limit and more > 0 and others and self.held_tokens + more > limit:
            raise self._overloaded(
                "max_held_tokens",
                f"With {more} tokens more than {self.held_tokens} the limit of {limit} would be passed.",
            )
        self.held_tokens += more

    def _overloaded(self, limit: str, message: str) -> OverloadedError:
        delay_s = self.places.retry_delay_s()
        return OverloadedError(message, metadata={"limit": limit}, retry_delay_s=delay_s)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Counts a refusal of this admission that passes; those of the processes behind name no `limit`."""
        try:
            yield
        except (OverloadedError, RateLimitedError) as error:
            limit = error.metadata.get("limit")
            if limit and self._refused is not None:
                self._refused(limit)
            raise

    def _check_seats(self) -> None:
        if self.seat_count >= self.limits.seats:
            raise self._overloaded(
                "max_waiting",
                f"{self.running_count} generations are running and {self.seat_count - self.running_count} waiting; "
                f"the limits are {self.limits.max_running} and {self.limits.max_waiting}.",
            )
