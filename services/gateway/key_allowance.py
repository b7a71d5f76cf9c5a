"""What one API key has taken of its limits in this gateway. Several gateways count each for itself."""

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from services.gateway.caller import Caller, Limits
from services.gateway.token_bucket import TokenBucket
from services.runtime.errors import InvalidArgumentError, RateLimitedError

MAX_ALLOWANCES = 16_384
"""Keys that are remembered; above that the one longest unused that holds nothing begins anew."""

LEAST_RETRY_S = 1.0
"""Told to a key whose generations have not shown yet how long they take."""


@dataclass(frozen=True)
class Level:
    """One limit, as `x-ratelimit-*` tells it."""

    limit: int
    remaining: int
    reset_s: float
    """Seconds until all of it is there again."""


class KeyAllowance:
    """The concurrency and the two buckets of a key; see caller.Limits.

    Args:
        clock: monotonic, in seconds.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.limits = limits
        self.concurrent = 0
        self._held_s = 0.0
        self._requests = _bucket(limits.requests_per_minute, math.inf, clock)
        self._tokens = _bucket(limits.tokens_per_minute, limits.burst_tokens, clock)

    def follow(self, limits: Limits) -> None:
        """The limits that the key has now."""
        if limits == self.limits:
            return
        self.limits = limits
        self._requests = _resized(
            self._requests, _bucket(limits.requests_per_minute, math.inf, self._clock)
        )
        self._tokens = _resized(
            self._tokens, _bucket(limits.tokens_per_minute, limits.burst_tokens, self._clock)
        )

    def check(self) -> None:
        """Raises RateLimitedError where no request at all could be taken now."""
        self._check_concurrency()
        if self._requests is not None and self._requests.level < 1:
            raise _limited(
                "requests_per_minute",
                f"{self.limits.requests_per_minute:g} requests a minute",
                self._requests.wait_s(1),
            )
        if self._tokens is not None and self._tokens.level < 1:
            raise _limited("tokens_per_minute", self._rate(), self._tokens.wait_s(1))

    def take_request(self) -> None:
        """Count one request; after `check`."""
        if self._requests is not None:
            self._requests.take(1)

    def begin(self) -> float:
        """Count one more generation; the moment goes to `end`. Raises RateLimitedError."""
        self._check_concurrency()
        self.concurrent += 1
        return self._clock()

    def end(self, begun_s: float) -> None:
        """A generation is over."""
        self.concurrent -= 1
        self._held_s += (self._clock() - begun_s - self._held_s) / 8

    def give_back_request(self) -> None:
        """A request that was counted was refused for its tokens."""
        if self._requests is not None:
            self._requests.give_back(1)

    @property
    def most_tokens(self) -> float:
        """That one request may ever have."""
        return math.inf if self._tokens is None else self._tokens.size

    def take_tokens(self, count: int, taken: int, field: str) -> None:
        """Take what is missing to `count`, or give back what is too much. Raises RateLimitedError.

        Raises InvalidArgumentError for a request that the bucket can never hold.

        Args:
            field: what makes it so many.
        """
        bucket, more = self._tokens, count - taken
        if bucket is None:
            return
        if count > bucket.size:
            limit = (
                f"at most {bucket.size:g} tokens for this API key, max_tokens and prompt together"
            )
            raise InvalidArgumentError(field, f"{count} tokens", limit)
        wait_s = bucket.wait_s(more)
        if more > 0 and wait_s > 0:
            raise _limited("tokens_per_minute", self._rate(), wait_s)
        bucket.give_back(-more)

    def settle_tokens(self, taken: int, used: int) -> None:
        """Give back what was not used, or take what was used besides: the bucket may be overdrawn by it."""
        if self._tokens is not None:
            self._tokens.give_back(taken - used)

    def levels(self) -> tuple[Level | None, Level | None]:
        """Requests and tokens; None where there is no limit."""
        return _level(self._requests), _level(self._tokens)

    def _check_concurrency(self) -> None:
        if self.concurrent >= self.limits.max_concurrent:
            retry_s = max(self._held_s / self.limits.max_concurrent, LEAST_RETRY_S)
            raise _limited(
                "max_concurrent", f"{self.limits.max_concurrent:g} generations at once", retry_s
            )

    def _rate(self) -> str:
        return f"{self.limits.tokens_per_minute:g} tokens a minute"


class KeyAllowances:
    """The allowance of every key that has limits.

    Args:
        clock: monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: OrderedDict[str, KeyAllowance] = OrderedDict()

    def of(self, caller: Caller) -> KeyAllowance | None:
        """The caller's; None where it has no limits."""
        limits = caller.limits
        if (
            limits.max_concurrent
            == limits.requests_per_minute
            == limits.tokens_per_minute
            == math.inf
        ):
            return None
        name = caller.key_id or caller.owner
        allowance = self._known.get(name)
        if allowance is None:
            self._make_room()
            allowance = self._known[name] = KeyAllowance(limits, self._clock)
        self._known.move_to_end(name)
        allowance.follow(limits)
        return allowance

    def _make_room(self) -> None:
        if len(self._known) >= MAX_ALLOWANCES:
            key_id, oldest = self._known.popitem(last=False)
            if oldest.concurrent:  # in use: the next one's turn
                self._known[key_id] = oldest


def _bucket(per_minute: float, size: float, clock: Callable[[], float]) -> TokenBucket | None:
    if math.isinf(per_minute):
        return None
    return TokenBucket(per_minute if math.isinf(size) else size, per_minute / 60, clock)


def _resized(old: TokenBucket | None, new: TokenBucket | None) -> TokenBucket | None:
    if old is None or new is None:
        return new
    old.resize(new.size, new.per_s)
    return old


def _level(bucket: TokenBucket | None) -> Level | None:
    if bucket is None:
        return None
    remaining = max(math.floor(bucket.level), 0)
    return Level(math.floor(bucket.size), remaining, bucket.wait_s(bucket.size))


def _limited(name: str, limit: str, retry_s: float) -> RateLimitedError:
    return RateLimitedError(
        f"This API key's limit is reached: {limit}.",
        metadata={"limit": name},
        retry_delay_s=retry_s,
    )
