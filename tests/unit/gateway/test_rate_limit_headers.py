"""x-ratelimit-* as OpenAI writes them."""

import pytest
from admission_clock import Clock

from services.gateway.caller import Limits
from services.gateway.key_allowance import KeyAllowance
from services.gateway.rate_limit_headers import duration, rate_limit_headers


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0s"),
        (0.0199, "20ms"),
        (0.9999, "1s"),
        (1.0, "1s"),
        (1.21, "1.3s"),
        (59.96, "1m0s"),
        (61.0, "1m1s"),
        (360.0, "6m0s"),
        (3630.0, "1h0m30s"),
    ],
    ids=lambda value: str(value),
)
def test_a_duration_is_never_told_shorter_than_it_is(seconds, shown):
    assert duration(seconds) == shown


def test_only_limits_that_the_key_has_are_told():
    clock = Clock()
    allowance = KeyAllowance(Limits(requests_per_minute=60, max_concurrent=3), clock)
    allowance.take_request()
    assert rate_limit_headers(allowance) == [
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-requests", "59"),
        ("x-ratelimit-reset-requests", "1s"),
    ]
