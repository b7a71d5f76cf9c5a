"""Who is next: by priority within bounds, fairly between keys, first come first served within one."""

import pytest
from admission_clock import Clock

from services.gateway.fair_queue import FairQueue, Waiter


@pytest.fixture
def clock():
    return Clock()


def waiters(flow: str, count: int, **fields: float) -> list[Waiter]:
    given = {"weight": 1.0, "cost": 100.0, "priority": 0, **fields}
    return [Waiter(flow, **given) for _ in range(count)]


def filled(clock: Clock, *given: Waiter, step_s: float = 0.5) -> FairQueue:
    queue = FairQueue(step_s, clock)
    for waiter in given:
        queue.add(waiter)
    return queue


def order(queue: FairQueue, count: int | None = None) -> list[Waiter]:
    return [queue.pop() for _ in range(len(queue) if count is None else count)]


def flows(popped: list[Waiter]) -> str:
    return "".join(waiter.flow for waiter in popped)


def test_one_key_is_served_as_it_came(clock):
    given = waiters("a", 50)
    assert order(filled(clock, *given)) == given


def test_a_key_that_asks_for_much_waits_behind_itself(clock):
    queue = filled(clock, *waiters("a", 100))
    order(queue, 20)
    late = waiters("b", 1)[0]
    queue.add(late)
    assert late in order(queue, 2)


def test_two_keys_take_turns_whatever_each_asks_for(clock):
    queue = filled(clock, *waiters("a", 300), *waiters("b", 10))
    assert flows(order(queue, 20)) == "ab" * 10


def test_shares_are_by_weight(clock):
    queue = filled(clock, *waiters("a", 300, weight=3), *waiters("b", 300))
    served = flows(order(queue, 200))
    assert served.count("a") == pytest.approx(150, abs=3)


def test_shares_are_of_tokens_not_of_requests(clock):
    queue = filled(clock, *waiters("a", 300, cost=1000), *waiters("b", 300, cost=100))
    served = flows(order(queue, 220))
    assert served.count("b") == pytest.approx(10 * served.count("a"), rel=0.1)


def test_what_turned_out_dearer_is_charged_to_its_key(clock):
    queue = filled(clock, *waiters("a", 2), *waiters("b", 2))
    served = ""
    for _ in range(80):  # each key always has two that wait
        waiter = queue.pop()
        served += waiter.flow
        if waiter.flow == "a":
            queue.correct(waiter, 300)
        queue.add(waiters(waiter.flow, 1)[0])
    assert served.count("b") == pytest.approx(3 * served.count("a"), rel=0.2)


def test_a_correction_of_a_class_that_is_gone_is_nothing(clock):
    queue = filled(clock, *waiters("a", 1))
    queue.correct(queue.pop(), 1e9)
    assert len(queue) == 0


def test_the_more_urgent_class_goes_first(clock):
    low, high = waiters("a", 3, priority=10), waiters("a", 3, priority=-10)
    assert order(filled(clock, *low, *high)) == high + low


def test_a_request_is_overtaken_only_by_those_that_came_a_bounded_time_later(clock):
    queue = filled(clock, *waiters("low", 1, priority=20))
    for tenth in range(200):  # an urgent one every 0.1 s for 20 s, and one is served each time
        clock.forward(0.1)
        queue.add(waiters("high", 1, priority=0)[0])
        if queue.pop().flow == "low":
            assert tenth / 10 == pytest.approx(20 * 0.5, abs=0.3)
            return
    pytest.fail("the low one starved")


def test_without_a_step_priority_means_nothing(clock):
    first = waiters("a", 1, priority=100)
    clock_moved = filled(clock, *first, step_s=0.0)
    clock.forward(0.001)
    clock_moved.add(waiters("b", 1, priority=-100)[0])
    assert clock_moved.pop() is first[0]


def test_how_many_are_ahead_is_how_many_are_served_before(clock):
    queue = filled(clock, *waiters("a", 30), *waiters("b", 7), *waiters("c", 5, priority=-1))
    mine = waiters("d", 1)[0]
    queue.add(mine)
    ahead = queue.ahead_of(mine)
    assert order(queue).index(mine) == ahead


def test_who_leaves_is_gone_and_the_order_of_the_others_stays(clock):
    given = waiters("a", 10)
    queue = filled(clock, *given)
    queue.remove(given[4])
    queue.remove(given[0])
    assert len(queue) == 8
    assert order(queue) == given[1:4] + given[5:]


def test_nothing_is_kept_of_those_who_left(clock):
    queue = filled(clock)
    for _ in range(1000):
        waiter = waiters("a", 1)[0]
        queue.add(waiter)
        queue.remove(waiter)
    assert len(queue) == 0
    assert queue._classes == {}


def test_each_class_counts_its_own(clock):
    queue = filled(
        clock, *waiters("a", 3, priority=-5), *waiters("a", 2), *waiters("a", 1, priority=9)
    )
    assert [queue.count(r) for r in (range(-100, 0), range(1), range(1, 101))] == [3, 2, 1]


@pytest.mark.parametrize("count", [200, 2000, 20000], ids=str)
def test_thousands_wait_and_each_is_served_once(clock, count):
    given = [w for i in range(count) for w in waiters(f"{i % 50}", 1, priority=i % 3)]
    queue = filled(clock, *given)
    for waiter in given[::7]:
        queue.remove(waiter)
    served = order(queue)
    assert len(served) == len(set(map(id, served))) == count - len(given[::7])
