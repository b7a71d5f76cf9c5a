"""The limits of one key: concurrency, requests and tokens, and when each would let it in again."""

import pytest
from admission_clock import Clock, key

from services.gateway.caller import Caller, Limits
from services.gateway.key_allowance import MAX_ALLOWANCES, KeyAllowance, KeyAllowances, Level
from services.runtime.errors import InvalidArgumentError, RateLimitedError


@pytest.fixture
def clock():
    return Clock()


def allowance(clock: Clock, **limits: float) -> KeyAllowance:
    return KeyAllowance(Limits(**limits), clock)


def test_who_has_no_limits_has_no_account(clock):
    allowances = KeyAllowances(clock)
    assert allowances.of(Caller()) is None
    assert allowances.of(key(weight=3.0, first_priority=0)) is None


def test_each_key_has_its_own(clock):
    allowances = KeyAllowances(clock)
    first, second = (allowances.of(key(name, max_concurrent=1)) for name in "ab")
    first.begin()
    second.check()
    assert allowances.of(key("a", max_concurrent=1)) is first


def test_generations_at_once(clock):
    held = allowance(clock, max_concurrent=2)
    begun = [held.begin(), held.begin()]
    with pytest.raises(RateLimitedError, match="2 generations at once") as refused:
        held.check()
    assert refused.value.retry_delay_s >= 1
    held.end(begun[0])
    held.check()


def test_the_wait_for_a_slot_is_told_by_how_long_its_generations_take(clock):
    held = allowance(clock, max_concurrent=2)
    for _ in range(40):
        begun = held.begin()
        clock.forward(30)
        held.end(begun)
    held.begin()
    held.begin()
    with pytest.raises(RateLimitedError) as refused:
        held.begin()
    assert refused.value.retry_delay_s == pytest.approx(15, rel=0.1)


def test_requests_a_minute_and_the_moment_of_the_next(clock):
    held = allowance(clock, requests_per_minute=3)
    for _ in range(3):
        held.check()
        held.take_request()
    with pytest.raises(RateLimitedError, match="3 requests a minute") as refused:
        held.check()
    assert refused.value.retry_delay_s == pytest.approx(20)
    clock.forward(refused.value.retry_delay_s + 1e-6)
    held.check()


def test_tokens_and_the_moment_when_so_many_are_there(clock):
    held = allowance(clock, tokens_per_minute=600, burst_tokens=100)
    held.take_tokens(80, 0, "sampling.max_tokens")
    with pytest.raises(RateLimitedError, match="600 tokens a minute") as refused:
        held.take_tokens(50, 0, "sampling.max_tokens")
    assert refused.value.retry_delay_s == pytest.approx(3)
    clock.forward(3.001)
    held.take_tokens(50, 0, "sampling.max_tokens")


def test_a_guess_that_was_too_small_takes_only_the_rest(clock):
    held = allowance(clock, tokens_per_minute=60)
    held.take_tokens(50, 0, "sampling.max_tokens")
    held.take_tokens(60, 50, "sampling.max_tokens")
    assert held.levels()[1].remaining == 0


def test_a_guess_that_was_too_large_gives_the_rest_back(clock):
    held = allowance(clock, tokens_per_minute=60)
    held.take_tokens(50, 0, "sampling.max_tokens")
    held.take_tokens(20, 50, "sampling.max_tokens")
    assert held.levels()[1].remaining == 40


def test_more_than_the_bucket_ever_holds_is_the_request_s_fault(clock):
    held = allowance(clock, tokens_per_minute=600, burst_tokens=100)
    with pytest.raises(InvalidArgumentError, match="at most 100 tokens for this API key"):
        held.take_tokens(101, 0, "sampling.max_tokens")


def test_a_bucket_without_a_size_holds_one_minute(clock):
    assert allowance(clock, tokens_per_minute=600).levels()[1].limit == 600


def test_what_was_not_sampled_comes_back_and_what_was_sampled_besides_is_owed(clock):
    held = allowance(clock, tokens_per_minute=600)
    held.take_tokens(500, 0, "sampling.max_tokens")
    held.settle_tokens(500, 120)
    assert held.levels()[1].remaining == 480
    held.settle_tokens(0, 700)
    with pytest.raises(RateLimitedError):
        held.check()
    clock.forward(22.2)
    held.check()


def test_levels_say_what_is_left_and_when_all_is_back(clock):
    held = allowance(clock, requests_per_minute=60, tokens_per_minute=600)
    held.take_request()
    held.take_tokens(300, 0, "sampling.max_tokens")
    assert held.levels() == (Level(60, 59, 1.0), Level(600, 300, 30.0))
    assert allowance(clock, max_concurrent=1).levels() == (None, None)


def test_new_limits_of_a_key_count_from_then_on(clock):
    allowances = KeyAllowances(clock)
    allowances.of(key(requests_per_minute=2)).take_request()
    held = allowances.of(key(requests_per_minute=10))
    assert held.levels()[0].remaining == 9
    assert allowances.of(key(max_concurrent=1)).levels() == (None, None)


def test_keys_that_are_remembered_are_bounded_and_those_in_use_stay(clock):
    allowances = KeyAllowances(clock)
    used = allowances.of(key("used", max_concurrent=1))
    used.begin()
    for number in range(MAX_ALLOWANCES + 10):
        allowances.of(key(str(number), max_concurrent=1))
    assert len(allowances._known) <= MAX_ALLOWANCES + 1
    assert allowances.of(key("used", max_concurrent=1)) is used


def test_the_key_longest_unused_is_the_one_that_is_forgotten(clock):
    allowances = KeyAllowances(clock)
    kept, forgotten = (allowances.of(key(name, max_concurrent=1)) for name in ("kept", "forgotten"))
    for number in range(MAX_ALLOWANCES - 2):
        allowances.of(key(str(number), max_concurrent=1))
    assert allowances.of(key("kept", max_concurrent=1)) is kept
    allowances.of(key("one more", max_concurrent=1))
    assert allowances.of(key("kept", max_concurrent=1)) is kept
    assert allowances.of(key("forgotten", max_concurrent=1)) is not forgotten


def test_a_request_that_is_refused_for_its_tokens_is_given_back(clock):
    held = allowance(clock, requests_per_minute=2, tokens_per_minute=100)
    held.take_request()
    held.give_back_request()
    assert held.levels()[0].remaining == 2
