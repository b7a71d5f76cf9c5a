"""Session records as bytes and back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.sessions.record import (
    CacheScope,
    HistoryPolicy,
    ImageRetention,
    Session,
    StoredMessage,
    Turn,
)
from services.gateway.sessions.session_codec import decoded, encoded

TIMES = st.floats(0, 2**40, allow_nan=False)
DIGESTS = st.binary(min_size=32, max_size=32)
MESSAGES = st.builds(
    StoredMessage, st.binary(max_size=40), st.lists(DIGESTS, max_size=2).map(tuple), st.booleans()
)
TURNS = st.builds(
    Turn,
    messages=st.lists(MESSAGES, max_size=3).map(tuple),
    prompt_ids=st.binary(max_size=40),
    features=st.lists(st.binary(max_size=20), max_size=2).map(tuple),
    shown_media=st.lists(DIGESTS, max_size=2).map(tuple),
    kept_before=st.integers(0, 2**31),
    answer_ids=st.binary(max_size=40),
    stop_match=st.text(max_size=10),
    answer_prefix=st.text(max_size=10),
    enable_thinking=st.none() | st.booleans(),
)
POLICIES = st.builds(
    HistoryPolicy, st.integers(0, 2**24), st.sampled_from(ImageRetention), st.integers(0, 10)
)
SESSIONS = st.builds(
    Session,
    session_id=st.binary(min_size=16, max_size=16),
    owner=st.text(max_size=20),
    model=st.text(max_size=20),
    create_time_s=TIMES,
    expire_time_s=TIMES,
    idle_ttl_s=TIMES,
    absolute_ttl_s=TIMES,
    cache_scope=st.sampled_from(CacheScope),
    policy=POLICIES,
    salt=st.text(max_size=20),
    preamble=st.lists(MESSAGES, max_size=2).map(tuple),
    turns=st.lists(TURNS, max_size=3).map(tuple),
    turn_count=st.integers(0, 2**31),
    options_digest=st.binary(max_size=32),
    renders_whole=st.booleans(),
    worker=st.text(max_size=10),
    version=st.integers(0, 2**31),
    media=st.frozensets(DIGESTS, max_size=3),
)


@settings(max_examples=300, deadline=None)
@given(session=SESSIONS)
def test_a_record_comes_back_as_it_was(session):
    assert decoded(encoded(session)) == session


@settings(max_examples=300, deadline=None)
@given(session=SESSIONS, data=st.data())
def test_a_damaged_record_is_absent_or_a_record_and_never_an_error(session, data):
    record = bytearray(encoded(session))
    for _ in range(data.draw(st.integers(1, 4))):
        record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
    found = decoded(bytes(record[: data.draw(st.integers(0, len(record)))]))
    assert found is None or isinstance(found, Session)


@pytest.mark.parametrize("record", [b"", b"\0", b"\x02abc", b"\x01"], ids=repr)
def test_a_record_of_another_version_or_none_at_all_is_absent(record):
    assert decoded(record) is None
