"""Who gets the next generation."""

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from random import Random

import pytest

from services.gateway.interfaces import Load
from services.gateway.placement import WorkerPlacement, least_of_two


@dataclass
class LoadedWorker:
    name: str
    load: Load


@pytest.fixture
def placement():
    return WorkerPlacement(Random(7))


def workers(*loads: Load) -> list[LoadedWorker]:
    return [LoadedWorker(f"worker-{index}", load) for index, load in enumerate(loads)]


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        pytest.param(Load(3, 0, 0.1), Load(4, 0, 0.1), id="fewer-running"),
        pytest.param(Load(8, 0, 0.1), Load(6, 1, 0.1), id="a-waiting-one-weighs-four"),
        pytest.param(Load(8, 0, 0.1), Load(3, 0, 0.9), id="cache-left"),
        pytest.param(Load(5, 0, 0.98), Load(6, 0, 1.0), id="full-caches-are-compared-still"),
        pytest.param(Load(0, 0, 0.0), Load(0, 0, 0.6), id="idle-with-a-full-cache"),
    ],
)
def test_of_two_the_one_with_the_lower_score_is_chosen(placement, better, worse):
    pair = workers(worse, better)
    for _ in range(20):
        with placement.place(pair) as chosen:
            assert chosen is pair[1]


def test_a_burst_between_two_reports_spreads(placement):
    pair = workers(Load(2, 0, 0.1), Load(2, 0, 0.1))
    with ExitStack() as stack:
        names = Counter(stack.enter_context(placement.place(pair)).name for _ in range(40))
    assert names == {"worker-0": 20, "worker-1": 20}


def test_what_has_ended_no_longer_counts(placement):
    pair = workers(Load(), Load())
    for _ in range(5):
        with placement.place(pair):
            assert sum(map(placement.own, pair)) == 1
    assert sum(map(placement.own, pair)) == 0


def test_a_generation_that_fails_no_longer_counts(placement):
    [one] = workers(Load())
    with pytest.raises(ValueError, match="broke"), placement.place([one]):
        raise ValueError("broke")
    assert placement.own(one) == 0


def test_own_generations_are_not_counted_twice_when_the_worker_reports_them(placement):
    pair = workers(Load(), Load(1, 0, 0.0))
    with placement.place([pair[0]]):
        assert placement.score(pair[0]) == 2
        pair[0].load = Load(1, 0, 0.0)
        assert placement.score(pair[0]) == 2
        assert placement.score(pair[1]) == 2  # another gateway's
    assert placement.score(pair[0]) == 1  # ended, before the worker could say so
    assert placement.score(pair[1]) == 2


def test_among_many_two_are_taken_at_random_and_the_busiest_is_never_chosen(placement):
    many = workers(*(Load(busy, 0, 0.0) for busy in (50, 0, 0, 0, 0)))
    chosen = Counter()
    for _ in range(400):
        with placement.place(many) as worker:
            chosen[worker.name] += 1
    assert set(chosen) == {"worker-1", "worker-2", "worker-3", "worker-4"}
    assert min(chosen.values()) > 50


def test_the_choice_follows_from_the_random_numbers_given():
    def choices() -> list[str]:
        placement, many = WorkerPlacement(Random(3)), workers(*[Load()] * 6)
        names = []
        for _ in range(30):
            with placement.place(many) as worker:
                names.append(worker.name)
        return names

    assert choices() == choices()
    assert len(set(choices())) == 6


def test_one_candidate_is_chosen_whatever_its_score():
    assert least_of_two(["only"], lambda one: 1e9, Random(1)) == "only"


def test_stale_reports_do_not_send_everybody_to_one_worker():
    """Four gateways that hear nothing new meanwhile: a least-loaded choice would put all 80 on worker-0."""
    many = workers(Load(0, 0, 0.0), *(replace(Load(1, 0, 0.0)) for _ in range(9)))
    total: Counter[str] = Counter()
    for seed in range(4):
        placement = WorkerPlacement(Random(seed))
        with ExitStack() as stack:
            total.update(stack.enter_context(placement.place(many)).name for _ in range(20))
    assert max(total.values()) < 20


def test_the_worker_that_has_the_prefix_is_chosen_while_it_is_not_too_loaded():
    placement = WorkerPlacement(Random(1))
    idle, busy = workers(Load(0, 0, 0.0), Load(4, 0, 0.1))
    for _ in range(20):
        with placement.place([idle, busy], prefer=busy.name) as worker:
            assert worker is busy


def test_a_prefix_is_no_reason_to_wait_in_a_queue():
    placement = WorkerPlacement(Random(1))
    idle, full = workers(Load(2, 0, 0.0), Load(16, 8, 0.9))
    with placement.place([idle, full], prefer=full.name) as worker:
        assert worker is idle


def test_a_worker_that_is_gone_is_not_preferred():
    placement = WorkerPlacement(Random(1))
    one, other = workers(Load(3, 0, 0.0), Load(0, 0, 0.0))
    with placement.place([one, other], prefer="worker-9") as worker:
        assert worker is other
