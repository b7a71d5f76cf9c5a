"""What a generation takes of its key and of the gateway, and when it gives it back."""

import asyncio
from dataclasses import replace

import pytest
from admission_clock import key
from scripted import (
    REQUEST,
    ScriptedPlacement,
    ScriptedTokenizer,
    ScriptedWorker,
    WorkerFinished,
    WorkerTokens,
)

from services.gateway.admission import Admission
from services.gateway.admission_limits import AdmissionLimits
from services.gateway.events import Event, Failed, Finish, Finished
from services.gateway.interfaces import GenerationRequest, WorkerStarted
from services.gateway.registry import Registry
from services.runtime.error_table import Reason
from services.runtime.errors import EngineDeadError, InternalError, OverloadedError

STARTED, END = WorkerStarted(cached_tokens=0), WorkerFinished(0, Finish.LENGTH, None, 3)
LIMITED = WorkerFinished(0, Finish.TIME_LIMIT, None, 0)
TOKENS = 6000.0


class Front:
    """A registry and its admission before one scripted worker."""

    def __init__(self, *steps: object, **fields: object) -> None:
        clock = asyncio.get_running_loop().time
        self.worker = ScriptedWorker(steps)
        self.admission = Admission(AdmissionLimits(max_running=2, max_waiting=0), clock)
        placement = ScriptedPlacement([ScriptedTokenizer()], [self.worker])
        self.registry = Registry(placement, self.admission, clock, 1.0)
        self.caller = key(tokens_per_minute=TOKENS, max_concurrent=1, **fields)

    def request(self, **fields: object) -> GenerationRequest:
        deadline_s = asyncio.get_running_loop().time() + 60
        return replace(
            REQUEST, **{"caller": self.caller, "deadline_s": deadline_s, "max_tokens": 50, **fields}
        )

    async def last(self, **fields: object) -> Event:
        """Its last event; by then everything must be given back."""
        async with asyncio.timeout(10):
            async for numbered in self.registry.stream(self.request(**fields)):
                event = numbered.event
                if isinstance(event, Finished | Failed):
                    assert self.admission.allowance(self.caller).concurrent == 0
                    assert (self.admission.seat_count, self.admission.held_tokens) == (0, 0)
        return event

    @property
    def spent(self) -> float:
        """Tokens that the key no longer has, what flowed in meanwhile left out."""
        return TOKENS - self.admission.allowance(self.caller).levels()[1].remaining


async def test_the_key_pays_for_the_prompt_and_what_was_sampled():
    front = Front(STARTED, WorkerTokens(0, [7, 8, 9]), END)
    assert isinstance(await front.last(), Finished)
    assert front.spent == pytest.approx(6, abs=1)


@pytest.mark.parametrize(
    "error", [OverloadedError("full"), InternalError()], ids=lambda e: e.reason.value
)
async def test_the_key_pays_nothing_for_what_no_worker_began(error):
    front = Front(error)
    assert isinstance(await front.last(), Failed)
    assert front.spent <= 1


async def test_the_key_pays_for_what_came_before_a_failure():
    front = Front(STARTED, WorkerTokens(0, list(range(40))), EngineDeadError("gone"))
    assert isinstance(await front.last(), Failed)
    assert front.spent == pytest.approx(43, abs=1)


async def test_a_prompt_beyond_the_key_s_tokens_never_reaches_a_worker():
    front = Front(STARTED, END, burst_tokens=52)
    failed = await front.last()
    assert failed.error.reason is Reason.INVALID_ARGUMENT
    assert front.worker.asked_max_tokens == 0


async def test_a_reader_that_leaves_gives_the_seat_back():
    front = Front(STARTED, WorkerTokens(0, [7]), 60.0, END)
    stream = front.registry.stream(front.request())
    await anext(stream)
    assert front.admission.seat_count == 1
    await stream.aclose()
    assert (front.admission.seat_count, front.admission.running_count) == (0, 0)


async def test_a_priority_too_urgent_for_the_key_is_clamped_for_the_worker_too():
    front = Front(STARTED, END, first_priority=7)
    seen: list[int] = []
    generate = front.worker.generate

    def watched(request: GenerationRequest, *others: object) -> object:
        seen.append(request.priority)
        return generate(request, *others)

    front.worker.generate = watched
    await front.last(priority=-50)
    await front.last(priority=9)
    assert seen == [7, 9]


async def test_case_24_a_time_limit_before_any_token_is_a_passed_deadline():
    failed = await Front(STARTED, LIMITED).last()
    assert failed.error.reason is Reason.DEADLINE_EXCEEDED


async def test_case_24_a_time_limit_after_a_token_is_an_end_with_the_text_so_far():
    finished = await Front(STARTED, WorkerTokens(0, [7]), LIMITED).last()
    assert [end.reason for end in finished.choices] == [Finish.TIME_LIMIT]
