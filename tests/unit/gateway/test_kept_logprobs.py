"""What is kept for a rebuilt text: all that it needs, and not what has come back already."""

import pytest
from hotline.v1 import generation_pb2

from services.gateway.events import PositionLogprobs
from services.gateway.kept_logprobs import KeptLogprobs
from services.gateway.logprob_wire import packed


def positions(*token_ids: int, first: int = 0) -> tuple[PositionLogprobs, ...]:
    return packed(
        generation_pb2.PositionLogprobs(
            sampled=generation_pb2.TokenLogprob(token_id=token_id, logprob=-place)
        )
        for place, token_id in enumerate(token_ids, first)
    )


def places(kept: KeptLogprobs) -> list[int | None]:
    return [None if one is None else -int(one.sampled.logprob) for one in kept.again()]


def test_without_any_there_is_nothing_to_send():
    assert KeptLogprobs().again() == []


def test_those_that_came_back_are_let_go():
    kept, ids = KeptLogprobs(), [5, 6, 7]
    entries = positions(*ids)
    kept.add(entries[:2])
    kept.add(entries[2:])
    assert list(kept.new(entries[:2], ids)) == list(entries[:2])
    assert places(kept) == [None, None, 2]


@pytest.mark.parametrize(
    ("ids", "shown", "kept_places"),
    [
        pytest.param([1, 2, 3, 4], [2], [None] * 3 + [3], id="left out before"),
        pytest.param([3, 9, 3, 4], [2], [None, 1, 2, 3], id="the same id twice"),
        pytest.param([3, 9, 3, 4], [2, 3], [None] * 4, id="and then another"),
    ],
)
def test_of_those_that_were_left_out_too_many_are_kept_but_never_too_few(ids, shown, kept_places):
    kept, entries = KeptLogprobs(), positions(*ids)
    kept.add(entries)
    kept.new([entries[place] for place in shown], ids)
    assert places(kept) == kept_places


def test_what_comes_once_more_is_dropped_by_its_number():
    kept, ids = KeptLogprobs(), [5, 5, 5, 6]
    entries = positions(*ids)
    kept.add(entries)
    kept.new(entries[:2], ids)
    kept.again()
    assert list(kept.new(entries[:1], ids)) == []
    assert list(kept.new(entries[1:4], ids)) == list(entries[2:])
    kept.again()
    assert list(kept.new(entries, ids)) == []
