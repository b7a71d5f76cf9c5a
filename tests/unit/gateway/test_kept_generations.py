"""What is kept of ended generations is bounded, the owner's only, and remembered for a while when it is gone."""

import pytest

from services.gateway import kept_generations
from services.gateway.events import Accepted, Text
from services.gateway.kept_generations import KeptGenerations
from services.gateway.replay import Replay
from services.gateway.retained import Retained
from services.gateway.retention import Retention, RetentionLimits, Unwatched
from services.runtime.errors import GenerationExpiredError, GenerationNotFoundError


class NoTimer:
    def cancel(self) -> None: ...


def one(characters: int = 10) -> Retained:
    replay = Replay()
    replay.put(Accepted("g", "m", 3, 0))
    replay.put(Text(0, "x" * characters))
    nothing = lambda: None  # noqa: E731
    later = lambda delay_s, act: NoTimer()  # noqa: E731
    return Retained(Retention(b"", 1, 1), replay, Unwatched(), later, nothing, nothing)


def filled(limits: RetentionLimits, count: int) -> KeptGenerations:
    table = KeptGenerations(limits)
    for number in range(count):
        table.add(("o", f"{number}"), one())
        table.ended(("o", f"{number}"))
    return table


def test_the_oldest_ended_one_goes_by_count():
    table = filled(RetentionLimits(max_kept_count=3), 5)
    assert table.ended_count == 3
    with pytest.raises(GenerationExpiredError, match="'1'"):
        table.get(("o", "1"))
    assert table.get(("o", "2"))


def test_the_oldest_ended_one_goes_by_bytes():
    table = filled(RetentionLimits(max_kept_bytes=5000), 10)
    assert 0 < table.kept_bytes <= 5000
    assert table.find(("o", "9"))
    assert not table.find(("o", "0"))


def test_running_ones_are_never_dropped_for_room():
    table = KeptGenerations(RetentionLimits(max_kept_count=0))
    table.add(("o", "runs"), one())
    table.add(("o", "ends"), one())
    table.ended(("o", "ends"))
    assert table.find(("o", "runs"))
    assert not table.find(("o", "ends"))


def test_an_id_of_another_owner_never_was():
    table = filled(RetentionLimits(), 1)
    for key in (("p", "0"), ("o", "00"), ("o", "")):
        with pytest.raises(GenerationNotFoundError):
            table.get(key)
    table.expire(("o", "0"))
    with pytest.raises(GenerationNotFoundError):
        table.get(("p", "0"))


def test_what_is_forgotten_never_was_and_what_begins_anew_is_not_expired():
    table = filled(RetentionLimits(), 2)
    table.forget(("o", "0"))
    with pytest.raises(GenerationNotFoundError):
        table.get(("o", "0"))
    table.expire(("o", "1"))
    assert table.kept_bytes == 0
    table.add(("o", "1"), one())
    assert table.get(("o", "1"))


def test_expired_ids_are_remembered_within_a_bound(monkeypatch):
    monkeypatch.setattr(kept_generations, "MAX_EXPIRED", 2)
    table = filled(RetentionLimits(max_kept_count=0), 3)
    with pytest.raises(GenerationNotFoundError):
        table.get(("o", "0"))
    with pytest.raises(GenerationExpiredError):
        table.get(("o", "2"))
