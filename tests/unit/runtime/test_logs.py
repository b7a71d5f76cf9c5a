"""One request id, end to end; a hostile one is replaced."""

import pytest
import structlog

from services.runtime.logs import bind_request_id, request_metadata


@pytest.fixture(autouse=True)
def clean_context():
    structlog.contextvars.clear_contextvars()
    yield
    structlog.contextvars.clear_contextvars()


def test_a_well_formed_id_of_the_peer_is_kept_and_passed_on():
    assert bind_request_id("abc-123") == "abc-123"
    assert request_metadata() == (("x-request-id", "abc-123"),)


@pytest.mark.parametrize("offered", [None, "", "a b", "a\n", "x" * 129, 'a"b', "é"])
def test_anything_else_is_replaced_by_a_new_one(offered):
    assert len(bind_request_id(offered)) == 32


def test_outside_of_a_call_nothing_is_passed_on():
    assert request_metadata() == ()
