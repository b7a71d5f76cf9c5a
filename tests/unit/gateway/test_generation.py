"""One generation: events in order, exactly one terminal event, slots freed, whatever breaks."""

import asyncio
from dataclasses import replace

import pytest
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
from services.gateway.events import Accepted, Failed, Finish, Finished, Numbered, Started, Text
from services.gateway.interfaces import GenerationRequest, WorkerStarted
from services.gateway.registry import Registry
from services.runtime.error_table import Reason
from services.runtime.errors import (
    EngineDeadError,
    FeaturesMissingError,
    GenerationConflictError,
    InvalidArgumentError,
    UnavailableError,
)

STARTED = WorkerStarted(cached_tokens=2)
END = WorkerFinished(0, Finish.LENGTH, None, 3)


def registry(
    worker: ScriptedWorker, tokenizer: ScriptedTokenizer | None = None, places: int = 4
) -> Registry:
    placement = ScriptedPlacement([tokenizer or ScriptedTokenizer()], [worker])
    clock = asyncio.get_running_loop().time
    limits = AdmissionLimits(max_running=places, max_waiting=4, queue_timeout_s=1.0)
    return Registry(placement, Admission(limits, clock), clock, 1.0)


def request(**fields: object) -> GenerationRequest:
    now_s = asyncio.get_running_loop().time()
    return replace(REQUEST, **{"deadline_s": now_s + 60, **fields})


async def played(registry: Registry, wanted: GenerationRequest) -> list[Numbered]:
    async with asyncio.timeout(10):
        return [numbered async for numbered in registry.stream(wanted)]


async def test_a_generation_is_accepted_started_spoken_and_finished():
    worker = ScriptedWorker([STARTED, WorkerTokens(0, [7]), 0.01, WorkerTokens(0, [8, 9]), END])
    events = [n.event for n in await played(registry(worker), request())]
    assert events[0] == Accepted("g", "m", 3, 0)
    assert events[1] == Started("worker", 2)
    assert "".join(e.text for e in events if isinstance(e, Text)) == "7 8 9 "
    assert isinstance(events[-1], Finished)
    assert [end.reason for end in events[-1].choices] == [Finish.LENGTH]
    usage = events[-1].usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (3, 3, 2)


async def test_the_first_token_goes_out_before_the_second_exists():
    worker = ScriptedWorker([STARTED, WorkerTokens(0, [7]), 30.0, END])
    running = registry(worker)
    async with asyncio.timeout(5):
        async for numbered in running.stream(request()):
            if isinstance(numbered.event, Text):
                assert numbered.event.text == "7 "
                break
    await running.close()


async def test_max_tokens_is_the_room_left_where_absent_or_larger():
    for asked, given in ((None, 97), (1000, 97), (5, 5)):
        worker = ScriptedWorker([STARTED, END])
        await played(registry(worker), request(max_tokens=asked))
        assert worker.asked_max_tokens == given


async def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers():
    worker, tokenizer = ScriptedWorker([STARTED, END]), ScriptedTokenizer(token_ids=range(100))
    [only] = await played(registry(worker, tokenizer), request())
    assert isinstance(only.event, Failed)
    assert only.event.error.reason is Reason.CONTEXT_LENGTH_EXCEEDED
    assert "100 tokens" in only.event.error.message


async def test_more_images_than_the_worker_takes_are_refused_in_the_clients_words():
    tokenizer = ScriptedTokenizer(digests=[b"d" * 32] * 5)
    [only] = await played(registry(ScriptedWorker([STARTED, END]), tokenizer), request())
    assert isinstance(only.event, Failed)
    assert only.event.error.message == (
        "messages: '5 images' is not allowed; must be at most 4 images in one prompt."
    )


async def test_a_stop_string_ends_the_worker_at_once_and_counts_what_was_shown():
    steps = [STARTED, WorkerTokens(0, [7, 8, 5]), WorkerTokens(0, [9]), 30.0, END]
    worker = ScriptedWorker(steps)
    events = [n.event for n in await played(registry(worker), request(stop=("8",)))]
    last = events[-1]
    assert isinstance(last, Finished)
    assert (last.choices[0].reason, last.choices[0].stop_match) == (Finish.STOP_SEQUENCE, "8")
    assert last.usage.completion_tokens == 2
    assert worker.running == 0


async def test_every_choice_ends_before_the_generation_does():
    steps = [
        STARTED,
        WorkerTokens(1, [1]),
        WorkerFinished(1, Finish.STOP, 99, 1),
        0.01,
        WorkerTokens(0, [2]),
        WorkerFinished(0, Finish.LENGTH, None, 1),
    ]
    events = [
        n.event for n in await played(registry(ScriptedWorker(steps)), request(choice_count=2))
    ]
    assert isinstance(events[-1], Finished)
    assert [end.reason for end in events[-1].choices] == [Finish.LENGTH, Finish.STOP]
    assert events[-1].usage.completion_tokens == 2


async def test_a_render_error_comes_alone_so_that_it_can_be_a_status():
    error = InvalidArgumentError("messages[0]", 1, "2")
    tokenizer = ScriptedTokenizer(render_error=error)
    [only] = await played(registry(ScriptedWorker([]), tokenizer), request())
    assert isinstance(only.event, Failed)
    assert only.event.error is error


async def test_an_engine_that_dies_midway_is_a_failed_event_with_the_usage_so_far():
    steps = [STARTED, WorkerTokens(0, [7]), 0.01, EngineDeadError("gone")]
    events = [n.event for n in await played(registry(ScriptedWorker(steps)), request())]
    assert isinstance(events[-1], Failed)
    assert events[-1].error.reason is Reason.ENGINE_DEAD
    assert events[-1].usage.completion_tokens == 1
    assert sum(isinstance(e, Finished | Failed) for e in events) == 1


async def test_a_fault_of_ours_is_an_error_for_the_reader_not_a_silence():
    class Broken(ScriptedTokenizer):
        async def render(self, request, timeout_s):
            raise RuntimeError("a secret of ours")

    [only] = await played(registry(ScriptedWorker([]), Broken()), request())
    assert isinstance(only.event, Failed)
    assert only.event.error.reason is Reason.INTERNAL
    assert "secret" not in only.event.error.message


async def test_a_broken_text_stream_fails_the_generation_and_frees_the_worker():
    tokenizer = ScriptedTokenizer()
    worker = ScriptedWorker([STARTED, WorkerTokens(0, [7]), 30.0, END])
    running = registry(worker, tokenizer)
    events = []
    async with asyncio.timeout(5):
        async for numbered in running.stream(request()):
            events.append(numbered.event)
            if isinstance(numbered.event, Text):
                tokenizer.texts[0].sink(UnavailableError("the tokenizer went"))
    assert isinstance(events[-1], Failed)
    assert worker.running == 0


async def test_a_reader_that_goes_frees_the_worker_and_the_id():
    worker = ScriptedWorker([STARTED, WorkerTokens(0, [7]), 30.0, END])
    running = registry(worker)
    stream = running.stream(request())
    async with asyncio.timeout(5):
        async for numbered in stream:
            if isinstance(numbered.event, Text):
                break
        await stream.aclose()
    assert worker.running == 0
    assert running.running_count == 0


async def test_cancel_by_name_ends_with_cancelled_and_the_text_so_far():
    worker = ScriptedWorker([STARTED, WorkerTokens(0, [7]), 30.0, END])
    running, events = registry(worker), []
    async with asyncio.timeout(5):
        async for numbered in running.stream(request()):
            events.append(numbered.event)
            if isinstance(numbered.event, Text):
                assert not running.cancel("somebody else", "g")
                assert running.cancel("o", "g")
    assert isinstance(events[-1], Finished)
    assert events[-1].choices[0].reason is Finish.CANCELLED
    assert worker.running == 0


async def test_cancel_before_acceptance_is_an_error():
    tokenizer = ScriptedTokenizer(render_delay_s=30.0)
    running = registry(ScriptedWorker([]), tokenizer)
    asyncio.get_running_loop().call_later(0.05, running.cancel, "o", "g")
    [only] = await played(running, request())
    assert isinstance(only.event, Failed)
    assert only.event.error.reason is Reason.CANCELLED


async def test_an_id_that_runs_is_refused_and_the_running_one_goes_on():
    worker = ScriptedWorker([STARTED, WorkerTokens(0, [7]), 0.2, END])
    running = registry(worker)
    first = asyncio.ensure_future(played(running, request()))
    await asyncio.sleep(0.05)
    with pytest.raises(GenerationConflictError):
        await played(running, request())
    assert isinstance((await first)[-1].event, Finished)


async def test_the_deadline_ends_a_generation_whose_worker_is_silent():
    worker = ScriptedWorker([STARTED, 30.0])
    now_s = asyncio.get_running_loop().time()
    events = await played(registry(worker), request(deadline_s=now_s + 0.2))
    last = events[-1].event
    assert isinstance(last, Failed)
    assert last.error.reason is Reason.DEADLINE_EXCEEDED
    assert worker.running == 0


@pytest.mark.parametrize("silent", ["worker", "tokenizer"])
async def test_whoever_hangs_the_text_so_far_ends_just_before_the_deadline(silent):
    worker = ScriptedWorker([STARTED, WorkerTokens(0, [7]), 30.0])
    tokenizer = ScriptedTokenizer(silent=silent == "tokenizer")
    now_s = asyncio.get_running_loop().time()
    deadline_s = now_s + 0.4
    events = await played(registry(worker, tokenizer), request(deadline_s=deadline_s))
    assert asyncio.get_running_loop().time() < deadline_s
    last = events[-1].event
    assert isinstance(last, Finished)
    assert [end.reason for end in last.choices] == [Finish.TIME_LIMIT]
    assert last.usage.completion_tokens == 1
    assert worker.running == 0


async def test_who_waits_longer_than_the_queue_allows_is_told_to_come_back():
    worker = ScriptedWorker([STARTED, 30.0])
    running = registry(worker, places=1)
    first = asyncio.ensure_future(played(running, request()))
    await asyncio.sleep(0.05)
    [only] = await played(running, request(generation_id="second"))
    assert isinstance(only.event, Failed)
    assert only.event.error.reason is Reason.OVERLOADED
    assert only.event.error.retry_delay_s is not None
    await running.close()
    assert isinstance((await first)[-1].event, Finished)


async def test_features_displaced_from_the_tokenizer_are_rendered_once_more():
    tokenizer = ScriptedTokenizer(digests=[b"d" * 32], pushes_missing=1)
    events = await played(registry(ScriptedWorker([STARTED, END]), tokenizer), request())
    assert isinstance(events[-1].event, Finished)
    assert (tokenizer.renders, tokenizer.pushes) == (2, 2)


async def test_features_displaced_from_the_worker_are_pushed_and_asked_for_once_more():
    digest = b"d" * 32
    tokenizer = ScriptedTokenizer(digests=[digest])
    worker = ScriptedWorker([STARTED, END], refusals=[FeaturesMissingError([digest])])
    events = await played(registry(worker, tokenizer), request())
    assert isinstance(events[-1].event, Finished)
    assert (tokenizer.renders, tokenizer.pushes) == (1, 2)


async def test_features_displaced_from_both_are_rendered_pushed_and_asked_for_once_more():
    digest = b"d" * 32

    class Forgetful(ScriptedTokenizer):
        async def push_features(self, digests, worker, timeout_s):
            self.pushes += 1
            if self.pushes == 2:
                raise FeaturesMissingError(digests)

    tokenizer = Forgetful(digests=[digest])
    worker = ScriptedWorker([STARTED, END], refusals=[FeaturesMissingError([digest])])
    events = await played(registry(worker, tokenizer), request())
    assert isinstance(events[-1].event, Finished)
    assert (tokenizer.renders, tokenizer.pushes) == (2, 3)


async def test_features_that_are_missing_twice_fail_the_generation():
    missing = [FeaturesMissingError([b"d" * 32]) for _ in range(2)]
    worker = ScriptedWorker([STARTED, END], refusals=missing)
    tokenizer = ScriptedTokenizer(digests=[b"d" * 32])
    last = (await played(registry(worker, tokenizer), request()))[-1].event
    assert isinstance(last, Failed)
    assert last.error.reason is Reason.FEATURES_MISSING
    assert tokenizer.pushes == 2
