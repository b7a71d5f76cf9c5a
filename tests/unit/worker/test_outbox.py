"""What gathers for one message: merged by choice, in order, bounded by who fills it."""

from services.runtime.errors import OverloadedError
from services.worker.engine import Finished, Logprob, PositionLogprobs, Reason, Started, Tokens
from services.worker.outbox import Outbox

END = Finished(0, Reason.LENGTH, 3)


def test_runs_of_one_choice_are_merged_and_keep_the_first_position():
    outbox = Outbox(10)
    outbox.put(1, Tokens(0, 4, [7]))
    outbox.put(2, Tokens(0, 0, [1]))
    outbox.put(1, Tokens(0, 5, [8, 9]))
    batch = outbox.take()
    assert list(batch.runs) == [(1, 0), (2, 0)]
    assert (batch.runs[1, 0].position, batch.runs[1, 0].token_ids) == (4, [7, 8, 9])


def test_choices_of_one_handle_stay_apart():
    outbox = Outbox(10)
    outbox.put(1, Tokens(0, 0, [7]))
    outbox.put(1, Tokens(1, 0, [8]))
    assert list(outbox.take().runs) == [(1, 0), (1, 1)]


def test_log_probabilities_are_merged_with_their_ids():
    one = PositionLogprobs(Logprob(7, -0.5), [])
    outbox = Outbox(10)
    outbox.put(1, Tokens(0, 0, [7], [one]))
    outbox.put(1, Tokens(0, 1, [7], [one]))
    assert outbox.take().runs[1, 0].logprobs == [one, one]


def test_what_a_step_holds_is_not_changed_by_merging():
    step = Tokens(0, 0, [7])
    outbox = Outbox(10)
    outbox.put(1, step)
    outbox.put(1, Tokens(0, 1, [8]))
    assert step.token_ids == [7]


def test_taking_empties_it_and_a_new_run_begins():
    outbox = Outbox(10)
    outbox.put(1, Tokens(0, 0, [7]))
    assert outbox.filled.is_set()
    outbox.take()
    assert not outbox.filled.is_set()
    outbox.put(1, Tokens(0, 1, [8]))
    assert outbox.take().runs[1, 0].position == 1


def test_what_is_forgotten_is_not_told_and_the_rest_is():
    outbox, error = Outbox(10), OverloadedError("full")
    for handle in (1, 2):
        outbox.put(handle, Started(3, 0))
        outbox.put(handle, Tokens(0, 0, [7]))
        outbox.put(handle, END)
    outbox.fail(1, error)
    outbox.forget(1)
    batch = outbox.take()
    assert [handle for handle, _ in batch.started] == [2]
    assert list(batch.runs) == [(2, 0)]
    assert batch.ended == [(2, END)]


def test_at_the_limit_there_is_no_room_until_it_is_taken():
    outbox = Outbox(3)
    outbox.put(1, Tokens(0, 0, [7]))
    for _ in range(100):
        outbox.put(1, Tokens(0, 1, [7]))  # merged: no further thing to tell
    outbox.put(1, END)
    assert outbox.has_room.is_set()
    outbox.fail(2, OverloadedError("full"))
    assert not outbox.has_room.is_set()
    outbox.take()
    assert outbox.has_room.is_set()
