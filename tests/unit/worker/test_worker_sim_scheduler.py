"""Which sequences the simulated device takes into a step, without any clock."""

from collections.abc import Iterator
from itertools import count

import pytest
from worker_calls import MODEL
from worker_simulator import feature, job, sim_config

from services.worker.engine import Job
from services.worker.sim_blocks import EncoderCache
from services.worker.sim_scheduler import Scheduler, Work
from services.worker.sim_sequence import PromptNames, SimSequence
from services.worker.sim_tokens import Output


@pytest.fixture
def numbers() -> Iterator[int]:
    return count()


def scheduler(**limits: object) -> Scheduler:
    """4 sequences, 64 tokens a step, 100 blocks of 4 tokens, or as given."""
    return Scheduler(sim_config(**limits).limits)


def added(
    to: Scheduler, numbers: Iterator[int], job: Job, arrival_s: float = 0.0, output: int = 50
) -> SimSequence:
    """A sequence that waits."""
    made = SimSequence(
        job, Output(job, 0, MODEL, output), PromptNames(job, 4), next(numbers), arrival_s
    )
    to.add(made)
    return made


def step(on: Scheduler, begin_s: float = 0.0) -> Work:
    """One step from its beginning to its end."""
    (work,) = on.schedule(begin_s)
    on.finish(work)
    return work


def shares(work: Work) -> dict[str, int]:
    """Tokens of each generation in a step."""
    return {sequence.job.generation_id: tokens for sequence, tokens, _ in work.shares}


def test_nothing_to_do_is_no_step():
    assert scheduler().schedule(0.0) == []


def test_a_prompt_first_then_one_token_a_step(numbers: Iterator[int]):
    device = scheduler()
    added(device, numbers, job("a", ids=10))
    assert [shares(step(device)) for _ in range(3)] == [{"a": 10}, {"a": 1}, {"a": 1}]


def test_who_runs_goes_before_who_waits_within_the_steps_budget(numbers: Iterator[int]):
    device = scheduler(batched_tokens=8)
    added(device, numbers, job("a", ids=3))
    step(device)
    added(device, numbers, job("b", ids=[6] * 20, priority=-5))
    assert shares(step(device)) == {"a": 1, "b": 7}
    assert shares(step(device)) == {"a": 1, "b": 7}
    assert shares(step(device)) == {"a": 1, "b": 6}


def test_prefill_is_counted_and_decoding_is_not(numbers: Iterator[int]):
    device = scheduler()
    added(device, numbers, job("a", ids=10))
    assert [step(device).prefill_tokens for _ in range(2)] == [10, 0]
    added(device, numbers, job("b", ids=1))
    assert step(device).prefill_tokens == 1


def test_what_arrives_after_a_steps_beginning_is_not_in_it(numbers: Iterator[int]):
    device = scheduler()
    added(device, numbers, job("a"))
    added(device, numbers, job("b", ids=[6] * 10), arrival_s=2.0)
    assert shares(step(device, 1.0)) == {"a": 10}
    assert shares(step(device, 2.0)) == {"a": 1, "b": 10}


def test_an_ended_sequence_gives_its_blocks_and_its_place_back(numbers: Iterator[int]):
    device = scheduler()
    sequence = added(device, numbers, job("a", max_tokens=1))
    (work,) = device.schedule(0.0)
    assert device.kv_usage_ratio == 0.03
    assert device.finish(work) == [sequence]
    assert (device.running, device.kv_usage_ratio) == ([], 0)


def test_a_sequence_that_left_during_a_step_gets_nothing_of_it(numbers: Iterator[int]):
    device = scheduler()
    stays, leaves = (added(device, numbers, job(name, ids=10)) for name in "ab")
    (work,) = device.schedule(0.0)
    device.remove(leaves)
    assert device.finish(work) == [stays]
    assert (leaves.produced, leaves.computed) == (0, 0)
    device.remove(stays)
    assert device.kv_usage_ratio == 0


def test_steps_apart_are_one_for_each_sequence_and_none_for_who_is_in_one(numbers: Iterator[int]):
    device = scheduler()
    for name in "ab":
        added(device, numbers, job(name))
    first, second = device.schedule(0.0, together=False)
    assert (shares(first), shares(second)) == ({"a": 10}, {"b": 10})
    assert device.schedule(0.0, together=False) == []
    device.finish(second)
    assert [shares(work) for work in device.schedule(0.0, together=False)] == [{"b": 1}]


def test_who_is_preempted_in_the_middle_of_a_step_of_its_own_gets_nothing_of_it(
    numbers: Iterator[int],
):
    device = scheduler(blocks=6, prefix_caching=False)
    old, young = (added(device, numbers, job(name, ids=12)) for name in ("old", "young"))
    of_old, of_young = device.schedule(0.0, together=False)
    device.finish(of_old)
    device.schedule(0.0, together=False)  # old needs a seventh block
    assert (device.preemption_count, young.running) == (1, False)
    assert device.finish(of_young) == []
    assert (young.produced, young.total) == (0, 12)
    assert old.blocks == 4


def test_a_preempted_share_gives_its_tokens_back_to_the_step(numbers: Iterator[int]):
    device = scheduler(blocks=10, batched_tokens=14, prefix_caching=False)
    low = added(device, numbers, job("low", ids=21, priority=1))
    assert [shares(step(device)) for _ in range(2)] == [{"low": 14}, {"low": 7}]
    added(device, numbers, job("high", ids=12))
    added(device, numbers, job("long", ids=30))
    assert shares(step(device)) == {"low": 1, "high": 12, "long": 1}
    # "low" is in the step already when "high" needs an eleventh block
    assert shares(step(device)) == {"high": 1, "long": 13}
    assert (low.running, low.produced) == (False, 2)


def test_what_was_sampled_stays_sampled_and_is_computed_again(numbers: Iterator[int]):
    device = scheduler(blocks=6, prefix_caching=False)
    old, young = (added(device, numbers, job(name, ids=10, max_tokens=9)) for name in "ab")
    while young.produced == 0 or young.running:
        step(device)
    produced = young.produced
    while old.running:
        step(device)
    assert shares(step(device)) == {"b": 10 + produced}
    assert young.produced == produced + 1
    assert young.cached_tokens == 0


def test_what_was_preempted_goes_before_later_arrivals(numbers: Iterator[int]):
    device = scheduler(blocks=6, prefix_caching=False, sequences=2)
    old, young = (added(device, numbers, job(name, ids=12)) for name in "ab")
    late = added(device, numbers, job("late", ids=1))
    while young.produced == 0 or young.running:
        step(device)
    assert device.waiting == [young, late]
    device.remove(old)
    assert set(shares(step(device))) == {"b", "late"}


def test_an_image_is_charged_in_the_step_that_reaches_it(numbers: Iterator[int]):
    device = scheduler(batched_tokens=8)
    pictures = (feature(1, 2, 4), feature(2, 10, 8))
    added(device, numbers, job("a", ids=20, features=pictures))
    assert [step(device).images for _ in range(4)] == [1, 1, 0, 0]


def test_an_image_is_seen_again_after_a_preemption_once_the_encoder_has_forgotten_it(
    numbers: Iterator[int],
):
    device = scheduler(blocks=6, prefix_caching=False)
    old = added(device, numbers, job("old", ids=12))
    young = added(device, numbers, job("young", ids=12, features=(feature(1, 2, 4),)))
    assert step(device).images == 1
    step(device)
    assert not young.running
    device.remove(old)
    device._encoder = EncoderCache(64)
    assert step(device).images == 1


def test_a_block_that_ends_with_output_is_named_after_the_image_in_it(numbers: Iterator[int]):
    device = scheduler()
    chains = []
    for number in (1, 2):
        made = job("a", ids=[1, 2, 3, 4, 9, 9], features=(feature(number, 4, 2),), max_tokens=9)
        sequence = added(device, numbers, made)
        for _ in range(4):
            step(device)
        chains.append(sequence.chain)
        device.remove(sequence)
    assert [len(chain) for chain in chains] == [2, 2]
    assert chains[0][0] == chains[1][0]
    assert chains[0][1] != chains[1][1]


def test_removing_what_is_not_there_any_more_is_no_matter(numbers: Iterator[int]):
    device = scheduler()
    waiting = added(device, numbers, job("a"))
    device.remove(waiting)
    device.remove(waiting)
    assert device.schedule(0.0) == []
