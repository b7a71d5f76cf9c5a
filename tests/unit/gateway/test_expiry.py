"""Ends of many keys: none told early, none late, and no step with much to do."""

import time
from random import Random

from services.gateway.sessions.expiry import SLOT_S, Expiry

EVENTS = 1_000_000
SWEEP_S = 0.5


def ended_at(expiry: Expiry[str], now_s: float) -> list[str]:
    ended: list[str] = []
    while expiry.due(now_s, 100, ended.append):
        pass
    return ended


def test_a_million_creations_touches_and_ends_and_none_is_early_or_a_second_late():
    random, expiry = Random(5), Expiry[int]()
    ends: dict[int, float] = {}
    keys: list[int] = []
    now_s, next_sweep_s, late_s = 1_700_000_000.0, 0.0, 0.0
    created = events = 0

    def ended(key: int) -> None:
        nonlocal events, late_s
        end_s = ends.pop(key)
        assert end_s <= now_s
        late_s = max(late_s, now_s - end_s)
        events += 1

    while events < EVENTS:
        now_s += 0.0005
        if random.random() < 0.4 or not keys:
            key = created = created + 1
            keys.append(key)
        else:
            place = int(random.random() * len(keys))
            key = keys[place]
            if key not in ends:
                keys[place] = keys[-1]
                keys.pop()
                continue
        events += 1
        ends[key] = now_s + 10 + random.random() * 30
        expiry.set(key, ends[key])
        if now_s >= next_sweep_s:
            next_sweep_s = now_s + SWEEP_S
            while expiry.due(now_s, 250, ended):
                pass
            assert len(expiry) == len(ends)
    assert len(ends) > 10_000
    assert SLOT_S + SWEEP_S < 1
    assert late_s <= SLOT_S + SWEEP_S + 0.01
    now_s += 50
    while expiry.due(now_s, 250, ended):
        pass
    assert not ends
    assert not len(expiry)


def test_a_touch_moves_an_end_on_and_a_shorter_one_counts_too():
    expiry = Expiry[str]()
    expiry.set("on", 10.0)
    expiry.set("on", 20.0)
    expiry.set("back", 20.0)
    expiry.set("back", 10.0)
    assert ended_at(expiry, 9.99) == []
    assert ended_at(expiry, 10.3) == ["back"]
    assert ended_at(expiry, 19.99) == []
    assert ended_at(expiry, 20.3) == ["on"]


def test_what_is_forgotten_does_not_end_and_may_begin_anew():
    expiry = Expiry[str]()
    expiry.set("a", 10.0)
    expiry.forget("a")
    expiry.forget("never was")
    assert not len(expiry)
    expiry.set("a", 30.0)
    assert ended_at(expiry, 20.0) == []
    assert ended_at(expiry, 31.0) == ["a"]


def test_a_batch_looks_at_so_many_and_says_that_there_are_more():
    expiry, ended = Expiry[int](), []
    for key in range(10):
        expiry.set(key, 1.0)
    assert expiry.due(2.0, 4, ended.append)
    assert len(ended) == 4
    assert not expiry.due(2.0, 100, ended.append)
    assert sorted(ended) == list(range(10))


def test_setting_and_forgetting_beside_100_000_keys_never_takes_20_ms():
    expiry, worst_s = Expiry[int](), 0.0
    for key in range(100_000):
        expiry.set(key, 10 + key * SLOT_S)
    for key in range(-210_000, 0):
        begun_s = time.thread_time()
        expiry.set(key, 90_000 - key * SLOT_S)
        expiry.forget(key)
        worst_s = max(worst_s, time.thread_time() - begun_s)
    assert worst_s < 0.02


def test_what_comes_and_goes_takes_no_room():
    expiry = Expiry[int]()
    for key in range(50_000):
        expiry.set(key, 10 + key * SLOT_S)
        expiry.forget(key)
    assert len(expiry._heap) < 2_000
