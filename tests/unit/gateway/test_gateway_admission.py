"""What the gateway takes in: its bounds, its keys' limits, and that everything is given back."""

import asyncio
from contextlib import asynccontextmanager, contextmanager

import pytest
from admission_clock import Clock, asked, key

from services.gateway.admission import Admission
from services.gateway.admission_limits import AdmissionLimits
from services.gateway.caller import Caller
from services.gateway.interfaces import GenerationRequest
from services.gateway.seat import Seat
from services.runtime.errors import InvalidArgumentError, OverloadedError, RateLimitedError


class Counted(Admission):
    """An admission that remembers its refusals."""

    def __init__(self, clock: Clock, **limits: float) -> None:
        self.refusals: list[str] = []
        super().__init__(AdmissionLimits(**limits), clock, self.refusals.append)

    @property
    def held(self) -> tuple[int, ...]:
        return (
            self.seat_count,
            self.held_bytes,
            self.held_tokens,
            self.running_count,
            self.waiting_count,
        )


@pytest.fixture
def clock():
    return Clock()


@contextmanager
def seated(admission: Admission, caller: Caller, size_bytes: int = 40):
    with admission.enter(caller, size_bytes) as entry:
        seat = entry.seat()
        try:
            yield seat
        finally:
            seat.close()


@asynccontextmanager
async def placed(admission: Admission, request: GenerationRequest, size_bytes: int = 40):
    with seated(admission, request.caller, size_bytes) as seat:
        async with seat.place(request):
            yield seat


async def whole(
    admission: Admission, request: GenerationRequest, prompt: int, sampled: int
) -> Seat:
    """A generation from its call to its end."""
    async with placed(admission, request) as seat:
        seat.rendered(request, prompt, request.max_tokens or 10_000)
        seat.used(prompt + sampled)
    return seat


async def test_a_seat_for_each_place_and_each_that_may_wait_and_no_more(clock):
    admission = Counted(clock, max_running=1, max_waiting=2)
    seats = [admission.take_seat(Caller()) for _ in range(3)]
    with pytest.raises(OverloadedError, match="the limits are 1 and 2"):
        admission.check(Caller())
    seats[0].close()
    seats[0].close()
    admission.check(Caller())
    assert admission.seat_count == 2


def test_bytes_are_bounded_before_anything_else_is_known(clock):
    admission = Counted(clock, max_held_bytes=100)
    with admission.enter(Caller(), 60):
        assert admission.held_bytes == 60
        with (
            pytest.raises(OverloadedError, match="the limit is 100"),
            admission.enter(Caller(), 41),
        ):
            pytest.fail("let in")
        with admission.enter(Caller(), 40):
            assert admission.held_bytes == 100
    assert admission.held == (0, 0, 0, 0, 0)
    assert admission.refusals == ["max_held_bytes"]


def test_calls_that_only_read_hold_bytes_and_no_seat(clock):
    admission = Counted(clock, max_running=1, max_waiting=0, max_held_bytes=100)
    with admission.hold_bytes(100):
        assert admission.seat_count == 0
        with pytest.raises(OverloadedError), admission.hold_bytes(1):
            pytest.fail("let in")
    assert admission.held_bytes == 0


def test_a_call_that_fails_before_its_generation_gives_everything_back(clock):
    admission = Counted(clock)
    caller = key(max_concurrent=1)
    with pytest.raises(ValueError, match="no JSON"), admission.enter(caller, 10):
        raise ValueError("no JSON")
    assert admission.held == (0, 0, 0, 0, 0)
    admission.check(caller)


def test_a_refused_call_takes_none_of_the_key_s_requests(clock):
    admission = Counted(clock, max_held_bytes=100)
    caller = key(requests_per_minute=1)
    with pytest.raises(OverloadedError), admission.enter(caller, 101):
        pytest.fail("let in")
    with admission.enter(caller, 1):
        pass
    with pytest.raises(RateLimitedError):
        admission.check(caller)
    assert admission.refusals == ["max_held_bytes", "requests_per_minute"]


async def test_each_further_generation_of_a_call_needs_a_seat_of_its_own(clock):
    admission = Counted(clock, max_running=2, max_waiting=0)
    with admission.enter(Caller(), 10) as entry:
        seats = [entry.seat(), entry.seat()]
        with pytest.raises(OverloadedError):
            entry.seat()
        for seat in seats:
            seat.close()
    assert admission.held == (0, 0, 0, 0, 0)


async def test_tokens_are_guessed_by_bytes_then_counted_then_given_back(clock):
    admission = Counted(clock)
    request = asked(Caller(), max_tokens=50, choice_count=2)
    async with placed(admission, request, size_bytes=400) as seat:
        assert admission.held_tokens == 100 + 2 * 50
        seat.rendered(request, 30, 50)
        assert admission.held_tokens == 30 + 2 * 50
    assert admission.held == (0, 0, 0, 0, 0)


async def test_a_screenshot_is_not_taken_for_a_novel(clock):
    admission = Counted(clock)
    async with placed(admission, asked(Caller(), max_tokens=1), size_bytes=1_200_000):
        assert admission.held_tokens == 4096 + 1


async def test_an_answer_without_max_tokens_counts_as_a_usual_one(clock):
    admission = Counted(clock, default_output_tokens=500)
    request = asked(Caller())
    async with placed(admission, request, size_bytes=0) as seat:
        assert admission.held_tokens == 500
        seat.rendered(request, 10, 20)  # no more room than that
        assert admission.held_tokens == 30


async def test_the_budget_of_tokens_refuses_by_the_guess_and_again_by_the_count(clock):
    admission = Counted(clock, max_held_tokens=1000)
    first, second = (asked(Caller(), max_tokens=400) for _ in range(2))
    async with placed(admission, first) as seat:
        seat.rendered(first, 200, 400)
        with pytest.raises(OverloadedError, match="the limit of 1000"):
            async with placed(admission, second):
                pytest.fail("let in")
        third = asked(Caller(), max_tokens=300)
        with pytest.raises(OverloadedError):
            async with placed(admission, third) as seat:
                seat.rendered(third, 101, 300)
    assert admission.held == (0, 0, 0, 0, 0)
    assert admission.refusals == ["max_held_tokens"] * 2


async def test_one_alone_always_fits_the_budget_of_tokens(clock):
    admission = Counted(clock, max_held_tokens=10)
    request = asked(Caller(), max_tokens=400)
    async with placed(admission, request) as seat:
        seat.rendered(request, 2000, 400)


async def test_a_key_pays_for_prompt_and_answer_and_gets_the_rest_back(clock):
    admission = Counted(clock)
    caller = key(tokens_per_minute=6000)
    await whole(admission, asked(caller, max_tokens=1000), 100, 20)
    assert admission.allowance(caller).levels()[1].remaining == 5880


async def test_a_key_pays_nothing_for_what_never_began(clock):
    admission = Counted(clock)
    caller = key(tokens_per_minute=6000)
    request = asked(caller, max_tokens=1000)
    async with placed(admission, request) as seat:
        seat.rendered(request, 100, 1000)
        assert admission.allowance(caller).levels()[1].remaining == 4900
    assert admission.allowance(caller).levels()[1].remaining == 6000


async def test_a_key_without_the_tokens_is_told_when_it_has_them(clock):
    admission = Counted(clock)
    caller = key(tokens_per_minute=600)
    await whole(admission, asked(caller, max_tokens=500), 50, 500)
    with pytest.raises(RateLimitedError) as refused:
        await whole(admission, asked(caller, max_tokens=100), 10, 1)
    assert refused.value.retry_delay_s == pytest.approx(5)
    clock.forward(5)
    with pytest.raises(RateLimitedError) as refused:  # the prompt is known only now
        await whole(admission, asked(caller, max_tokens=100), 10, 1)
    assert refused.value.retry_delay_s == pytest.approx(1)
    clock.forward(1)
    await whole(admission, asked(caller, max_tokens=100), 10, 1)
    assert admission.held == (0, 0, 0, 0, 0)
    assert admission.refusals == ["tokens_per_minute"] * 2


async def test_a_request_that_the_bucket_never_holds_is_a_bad_one(clock):
    admission = Counted(clock)
    caller = key(tokens_per_minute=600)
    with pytest.raises(InvalidArgumentError, match="at most 600 tokens for this API key"):
        await whole(admission, asked(caller, max_tokens=601), 1, 1)
    with pytest.raises(InvalidArgumentError):
        await whole(admission, asked(caller, max_tokens=500), 101, 1)
    assert admission.allowance(caller).levels()[1].remaining == 600


async def test_the_key_s_concurrency_counts_those_that_wait(clock):
    admission = Counted(clock, max_running=1)
    caller = key(max_concurrent=2)
    async with placed(admission, asked(caller)):
        waiting = asyncio.create_task(whole(admission, asked(caller), 1, 1))
        await asyncio.sleep(0)
        assert admission.waiting_count == 1
        with pytest.raises(RateLimitedError, match="2 generations at once"):
            admission.check(caller)
        admission.check(key("another", max_concurrent=2))
    await waiting
    assert admission.held == (0, 0, 0, 0, 0)


async def test_who_is_refused_for_the_wait_gives_everything_back(clock):
    admission = Counted(clock, max_running=1, ttft_objective_s=2.0)
    for _ in range(20):
        async with placed(admission, asked(Caller())):
            clock.forward(1.0)
    async with placed(admission, asked(Caller())):
        waiting = [asyncio.create_task(whole(admission, asked(Caller()), 1, 1)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError, match="2 requests are ahead"):
            await whole(admission, asked(Caller()), 1, 1)
        assert admission.refusals == ["wait"]
        assert admission.waiting_count == 2
    await asyncio.gather(*waiting)
    assert admission.held == (0, 0, 0, 0, 0)


async def test_who_cannot_meet_its_deadline_is_refused_without_an_objective(clock):
    admission = Counted(clock, max_running=1)
    for _ in range(20):
        async with placed(admission, asked(Caller())):
            clock.forward(1.0)
    async with placed(admission, asked(Caller())):
        with pytest.raises(OverloadedError, match=r"this one can wait 0\.5 s"):
            await whole(admission, asked(Caller(), deadline_s=clock() + 0.5), 1, 1)


def test_a_priority_that_is_too_urgent_for_its_key_is_clamped():
    batch = key(first_priority=10)
    assert asked(batch, priority=0).priority == 10
    assert asked(batch, priority=50).priority == 50
    assert asked(Caller(), priority=-100).priority == -100


async def test_a_noisy_key_does_not_hold_up_a_quiet_one(clock):
    admission = Counted(clock, max_running=1)
    order: list[str] = []

    async def one(name: str) -> None:
        async with placed(admission, asked(key(name), max_tokens=100)):
            order.append(name)

    async with placed(admission, asked(key("noisy"))):
        noisy = [asyncio.create_task(one("noisy")) for _ in range(200)]
        await asyncio.sleep(0)
        quiet = [asyncio.create_task(one("quiet")) for _ in range(3)]
        await asyncio.sleep(0)
    await asyncio.gather(*noisy, *quiet)
    assert [i for i, name in enumerate(order) if name == "quiet"][-1] <= 6


async def test_a_storm_of_two_thousand_that_come_wait_and_leave_leaves_nothing(clock):
    admission = Counted(clock, max_running=4, max_waiting=2000)
    callers = [key(str(n), max_concurrent=500, tokens_per_minute=1e9) for n in range(8)]

    async def one(number: int) -> None:
        async with placed(admission, asked(callers[number % 8], priority=number % 3 - 1)) as seat:
            await asyncio.sleep(0)
            seat.used(3)

    tasks = [asyncio.create_task(one(number)) for number in range(2000)]
    await asyncio.sleep(0)
    for task in tasks[::3]:
        task.cancel()
    await asyncio.wait(tasks)
    assert sum(task.cancelled() for task in tasks) == len(tasks[::3])
    assert admission.held == (0, 0, 0, 0, 0)
    assert {admission.allowance(caller).concurrent for caller in callers} == {0}
