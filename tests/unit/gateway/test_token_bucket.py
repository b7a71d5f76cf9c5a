"""A bucket of tokens over time."""

import pytest
from admission_clock import Clock

from services.gateway.token_bucket import TokenBucket


@pytest.fixture
def clock():
    return Clock()


def test_it_is_full_at_first_and_fills_no_further(clock):
    bucket = TokenBucket(10, 2, clock)
    clock.forward(100)
    assert bucket.level == 10


def test_what_was_taken_flows_in_again(clock):
    bucket = TokenBucket(10, 2, clock)
    bucket.take(10)
    clock.forward(2.5)
    assert bucket.level == 5


def test_the_wait_is_exactly_as_long_as_it_takes(clock):
    bucket = TokenBucket(10, 2, clock)
    bucket.take(8)
    assert bucket.wait_s(2) == 0
    assert bucket.wait_s(6) == 2
    clock.forward(2)
    assert bucket.wait_s(6) == 0


def test_it_can_be_overdrawn_and_fills_from_below(clock):
    bucket = TokenBucket(10, 2, clock)
    bucket.take(14)
    assert bucket.level == -4
    clock.forward(3)
    assert bucket.level == 2


def test_what_is_given_back_never_makes_it_more_than_full(clock):
    bucket = TokenBucket(10, 2, clock)
    bucket.take(4)
    bucket.give_back(3)
    assert bucket.level == 9
    bucket.give_back(3)
    assert bucket.level == 10


def test_what_was_taken_stays_taken_under_new_limits(clock):
    bucket = TokenBucket(10, 2, clock)
    bucket.take(8)
    bucket.resize(20, 1)
    assert bucket.level == 12
    bucket.resize(4, 1)
    assert bucket.level == -4
