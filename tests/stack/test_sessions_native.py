"""Sessions by SessionService and Generate, through the gateway: real rendering, simulated engine."""

import asyncio
import hashlib

import grpc
import pytest
from google.protobuf import duration_pb2
from grpc import aio
from hotline.v1 import generation_pb2, inference_pb2, session_pb2
from native_sessions import SYSTEM, opened, picture, reason_of, service, turn, user
from sim_stack import LIMIT_S, sim_stack, started_tokenizer, started_worker


@pytest.fixture(scope="module")
async def stack():
    worker = await started_worker(max_model_len=4096)
    tokenizer = await started_tokenizer(worker.port)
    async with sim_stack(tokenizer, worker) as running:
        yield running
    await tokenizer.stop()
    await worker.stop()


async def test_a_session_is_opened_told_listed_touched_and_deleted(stack):
    sessions = service(stack)
    session = await opened(stack, idle_ttl=duration_pb2.Duration(seconds=60))
    assert len(session.session_id) == 32
    assert (session.model, session.turn_count) == ("autoglm-phone-tiny", 0)
    assert session.expire_time.seconds - session.create_time.seconds in (59, 60, 61)
    asked = session_pb2.GetSessionRequest(session_id=session.session_id)
    assert (await sessions.GetSession(asked, timeout=LIMIT_S)).session == session
    others = []
    for _ in range(3):
        await asyncio.sleep(0.002)  # those of one millisecond come by their ids
        others.append(await opened(stack))
    found, token = [], ""
    while True:
        request = session_pb2.ListSessionsRequest(page_size=2, page_token=token)
        page = await sessions.ListSessions(request, timeout=LIMIT_S)
        found += [each.session_id for each in page.sessions]
        token = page.next_page_token
        if not token:
            break
    wanted = [each.session_id for each in (*reversed(others), session)]
    assert [each for each in found if each in wanted] == wanted
    await asyncio.sleep(0.01)
    touch = session_pb2.TouchSessionRequest(session_id=session.session_id)
    until = (await sessions.TouchSession(touch, timeout=LIMIT_S)).expire_time
    assert until.ToMilliseconds() > session.expire_time.ToMilliseconds()
    delete = session_pb2.DeleteSessionRequest(session_id=session.session_id)
    for _ in range(2):  # idempotent
        await sessions.DeleteSession(delete, timeout=LIMIT_S)
    assert (await reason_of(sessions.GetSession(asked, timeout=LIMIT_S)))[0] == "SESSION_NOT_FOUND"


async def test_a_turn_sends_what_is_new_and_finds_the_rest_in_the_cache(stack):
    session = await opened(stack, messages=[SYSTEM])
    first = await turn(stack, session.session_id, user("one"))
    second = await turn(stack, session.session_id, user("two"))
    assert first.turn_committed
    assert second.turn_committed
    assert second.usage.prompt_tokens > first.usage.prompt_tokens
    assert second.usage.cached_tokens > first.usage.prompt_tokens * 0.8
    asked = session_pb2.GetSessionRequest(session_id=session.session_id)
    kept = (await service(stack).GetSession(asked, timeout=LIMIT_S)).session
    assert kept.turn_count == 2
    assert kept.history_tokens == second.usage.prompt_tokens + second.usage.completion_tokens


async def test_the_prompt_of_a_turn_has_the_tokens_of_the_whole_conversation(stack):
    session = await opened(stack)
    texts, past = ["Hello 你好", "再见 👋", "three"], []
    for number, text in enumerate(texts):
        opening = [SYSTEM] if not number else []
        finished = await turn(stack, session.session_id, *opening, user(text), max_tokens=1)
        past += [*opening, user(text)]
        count = inference_pb2.CountTokensRequest(messages=past)
        counted = await stack.inference.CountTokens(count, timeout=LIMIT_S)
        answers = number  # of one token each, which the count does not have, but for its two header tokens
        headers = finished.usage.prompt_tokens - counted.prompt_tokens - answers
        assert headers >= 0
        assert headers % max(number, 1) == 0
        assert headers <= 4 * number


async def test_after_clear_nothing_is_found_in_the_cache_and_the_history_stays(stack):
    session = await opened(stack, messages=[SYSTEM])
    await turn(stack, session.session_id, user("one"))
    clear = session_pb2.ClearSessionRequest(session_id=session.session_id)
    cleared = (await service(stack).ClearSession(clear, timeout=LIMIT_S)).session
    assert cleared.turn_count == 1
    after = await turn(stack, session.session_id, user("two"))
    assert after.usage.cached_tokens == 0
    again = await turn(stack, session.session_id, user("three"))
    assert again.usage.cached_tokens > 0


async def test_clear_can_forget_everything_that_was_said(stack):
    session = await opened(stack, messages=[SYSTEM])
    await turn(stack, session.session_id, user("one", picture("red")))
    clear = session_pb2.ClearSessionRequest(session_id=session.session_id, forget_history=True)
    cleared = (await service(stack).ClearSession(clear, timeout=LIMIT_S)).session
    assert (cleared.turn_count, cleared.history_tokens) == (0, 0)
    finished = await turn(stack, session.session_id, user("two"))
    assert finished.usage.prompt_tokens < 30
    assert stack.app.sessions.store.media.held_bytes == 0


async def test_a_hit_in_one_scope_never_shows_in_another(stack):
    own = {"cache_scope": session_pb2.CACHE_SCOPE_SESSION}
    alone = await opened(stack, messages=[SYSTEM], **own)
    other = await opened(stack, messages=[SYSTEM], **own)
    await turn(stack, alone.session_id, user("scope"))
    assert (await turn(stack, other.session_id, user("scope"))).usage.cached_tokens == 0
    shared = [await opened(stack, messages=[SYSTEM]) for _ in range(2)]
    await turn(stack, shared[0].session_id, user("scope"))
    assert (await turn(stack, shared[1].session_id, user("scope"))).usage.cached_tokens > 0


async def test_only_the_last_image_stays_and_an_unchanged_one_goes_by_its_digest(stack):
    session = await opened(stack)
    red, blue = picture("red"), picture("blue")
    first = await turn(stack, session.session_id, user("look", red))
    second = await turn(stack, session.session_id, user("look again", blue))
    extra = second.usage.prompt_tokens - first.usage.prompt_tokens
    assert 0 < extra < 40  # one image still
    digest = hashlib.sha256(blue).digest()
    third = await turn(stack, session.session_id, user("the same", digest=digest))
    assert 0 < third.usage.prompt_tokens - second.usage.prompt_tokens < 40
    request = inference_pb2.GenerateRequest(
        session_id=session.session_id, messages=[user("unknown", digest=b"?" * 32)]
    )
    call = stack.inference.Generate(request, timeout=LIMIT_S)
    reason, message = await reason_of(call.read())
    assert reason == "INVALID_MEDIA"
    assert "messages[0].content[0].image.media_digest" in message


async def test_a_first_turn_of_an_image_alone_may_lose_it(stack):
    session = await opened(stack)
    await turn(stack, session.session_id, user("", picture("red")))
    assert (await turn(stack, session.session_id, user("", picture("blue")))).turn_committed
    assert (await turn(stack, session.session_id, user("three"))).turn_committed


async def test_a_cancelled_turn_leaves_the_session_as_it_was(stack):
    session = await opened(stack)
    await turn(stack, session.session_id, user("one"))
    asked = session_pb2.GetSessionRequest(session_id=session.session_id)
    before = (await service(stack).GetSession(asked, timeout=LIMIT_S)).session
    request = inference_pb2.GenerateRequest(session_id=session.session_id, messages=[user("no")])
    request.sampling.max_tokens = 3000
    request.sampling.ignore_eos = True
    call = stack.inference.Generate(request, timeout=LIMIT_S)
    while not (await call.read()).HasField("text"):
        pass
    call.cancel()
    await stack.until(lambda: not stack.app.registry.running_count)
    after = (await service(stack).GetSession(asked, timeout=LIMIT_S)).session
    assert after.history_tokens == before.history_tokens
    assert after.turn_count == 1
    assert (await turn(stack, session.session_id, user("two"))).turn_committed


async def test_of_two_turns_at_once_the_second_is_refused_or_waits_as_asked(stack):
    session = await opened(stack)
    long = inference_pb2.GenerateRequest(session_id=session.session_id, messages=[user("long")])
    long.sampling.max_tokens = 200
    long.sampling.ignore_eos = True
    first = aiter(stack.inference.Generate(long, timeout=LIMIT_S))
    assert (await anext(first)).HasField("accepted")
    second = inference_pb2.GenerateRequest(session_id=session.session_id, messages=[user("now")])
    call = stack.inference.Generate(second, timeout=LIMIT_S)
    with pytest.raises(aio.AioRpcError) as raised:
        await call.read()
    assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    waiting = asyncio.create_task(
        turn(
            stack,
            session.session_id,
            user("later"),
            session_busy=inference_pb2.SESSION_BUSY_POLICY_WAIT,
        )
    )
    events = [event async for event in first]
    assert events[-1].finished.turn_committed
    waited = await waiting
    assert waited.turn_committed
    assert waited.usage.prompt_tokens > events[-1].finished.usage.completion_tokens


async def test_the_next_turn_may_come_at_the_moment_of_the_terminal_event(stack):
    session = await opened(stack)
    for number in range(20):
        assert (
            await turn(stack, session.session_id, user(f"{number}"), max_tokens=2)
        ).turn_committed


async def test_the_state_of_a_turn_is_told_in_the_terminal_event_only_where_it_is_committed(stack):
    session = await opened(stack)
    request = inference_pb2.GenerateRequest(session_id=session.session_id, messages=[user("slow")])
    request.sampling.max_tokens = 4000
    request.sampling.ignore_eos = True
    events = [event async for event in stack.inference.Generate(request, timeout=0.6)]
    assert events[-1].finished.reason in (
        generation_pb2.FINISH_REASON_TIME_LIMIT,
        generation_pb2.FINISH_REASON_LENGTH,
    )
    ended = events[-1].finished.reason == generation_pb2.FINISH_REASON_LENGTH
    assert events[-1].finished.turn_committed is ended
