"""The measured rate of ends while all places are taken."""

import pytest
from admission_clock import Clock

from services.gateway.service_rate import LEAST_ENDS, ServiceRate


def ends(rate: ServiceRate, clock: Clock, count: int, every_s: float) -> None:
    for _ in range(count):
        clock.forward(every_s)
        rate.ended()


def test_there_is_none_until_enough_was_seen():
    clock = Clock()
    rate = ServiceRate(4, clock)
    rate.busy(True)
    ends(rate, clock, int(LEAST_ENDS), 0.2)
    assert rate.per_s is None
    ends(rate, clock, 3, 0.2)
    assert rate.per_s == pytest.approx(5, rel=0.2)


def test_a_slow_service_has_a_rate_too():
    clock = Clock()
    rate = ServiceRate(4, clock)
    rate.busy(True)
    ends(rate, clock, 20, 60.0)
    assert rate.per_s == pytest.approx(1 / 60, rel=0.1)


def test_generations_that_end_together_do_not_make_it_jump():
    clock = Clock()
    rate = ServiceRate(100, clock)
    rate.busy(True)
    for _ in range(10):
        clock.forward(5.0)
        ends(rate, clock, 100, 0.0)
    assert rate.per_s == pytest.approx(20, rel=0.3)
    clock.forward(4.9)  # just before the next ones end
    assert rate.per_s == pytest.approx(20, rel=0.4)


def test_a_burst_of_ends_in_one_moment_is_no_measure():
    clock = Clock()
    rate = ServiceRate(4, clock)
    rate.busy(True)
    ends(rate, clock, 100, 0.0)
    assert rate.per_s is None


def test_idle_time_does_not_slow_it():
    clock = Clock()
    rate = ServiceRate(4, clock)
    rate.busy(True)
    ends(rate, clock, 40, 0.1)
    rate.busy(False)
    before = rate.per_s
    clock.forward(3600)
    rate.ended()
    assert rate.per_s == before == pytest.approx(10, rel=0.1)


def test_it_follows_a_change():
    clock = Clock()
    rate = ServiceRate(4, clock)
    rate.busy(True)
    ends(rate, clock, 200, 0.1)
    ends(rate, clock, 100, 1.0)
    assert rate.per_s == pytest.approx(1, rel=0.2)


def test_a_pause_of_seconds_after_many_quick_ends_is_no_change():
    clock = Clock()
    rate = ServiceRate(4, clock)
    rate.busy(True)
    ends(rate, clock, 5000, 0.004)
    clock.forward(4)
    assert rate.per_s == pytest.approx(250, rel=0.3)


def test_it_sinks_while_nothing_ends():
    clock = Clock()
    rate = ServiceRate(4, clock)
    rate.busy(True)
    ends(rate, clock, 200, 0.1)
    before = rate.per_s
    clock.forward(10)
    assert rate.per_s < before / 1.5
