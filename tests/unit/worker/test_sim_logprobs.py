"""The simulator's log-probabilities: made up, but such as a model could have."""

import math

import pytest

from services.worker.sim_logprobs import made_up_logprobs


@pytest.mark.parametrize("vocabulary_size", [1, 2, 30, 3072, 151_552])
def test_they_could_be_true(vocabulary_size):
    for place, entry in enumerate(made_up_logprobs([0] * 50, 0, vocabulary_size, 20)):
        top = entry.top
        assert len(top) == min(20, vocabulary_size), place
        assert top[0] == entry.sampled
        assert len({one.token_id for one in top}) == len(top)
        assert all(0 <= one.token_id < vocabulary_size for one in top)
        values = [one.logprob for one in top]
        assert values == sorted(values, reverse=True)
        assert sum(map(math.exp, values)) <= 1
        assert all(math.isfinite(value) and value <= 0 for value in values)


def test_they_follow_from_token_and_position_alone_however_they_were_cut():
    ids = [5, 6, 5, 5]
    whole = made_up_logprobs(ids, 10, 3072, 2)
    assert whole == made_up_logprobs(ids[:1], 10, 3072, 2) + made_up_logprobs(ids[1:], 11, 3072, 2)
    assert len({entry.sampled.logprob for entry in whole}) == 4


def test_without_a_count_the_sampled_one_stands_alone():
    [entry] = made_up_logprobs([5], 0, 3072, 0)
    assert entry.sampled.token_id == 5
    assert list(entry.top) == []
