"""What cannot be a session, or a turn of one, is refused by field, value and limit."""

import pytest
from google.protobuf import duration_pb2
from hotline.v1 import conversation_pb2, inference_pb2, session_pb2
from native_sessions import opened, reason_of, service, user
from sim_stack import LIMIT_S, sim_stack, started_tokenizer, started_worker


@pytest.fixture(scope="module")
async def stack():
    worker = await started_worker(max_model_len=4096)
    tokenizer = await started_tokenizer(worker.port)
    async with sim_stack(tokenizer, worker) as running:
        yield running
    await tokenizer.stop()
    await worker.stop()


@pytest.mark.parametrize(
    ("fields", "reason", "word"),
    [
        pytest.param({"session_id": "0" * 32}, "SESSION_NOT_FOUND", "session_id", id="absent"),
        pytest.param({"session_id": "0" * 31}, "INVALID_ARGUMENT", "session_id", id="short"),
        pytest.param({"session_id": "A" * 32}, "INVALID_ARGUMENT", "lower case", id="upper"),
    ],
)
async def test_ids_that_are_none_are_refused(stack, fields, reason, word):
    request = inference_pb2.GenerateRequest(messages=[user("hi")], **fields)
    told, message = await reason_of(stack.inference.Generate(request, timeout=LIMIT_S).read())
    assert told == reason
    assert word in message


@pytest.mark.parametrize(
    "sampling",
    [{"top_k": 10**6}, {"stop_token_ids": [10**6]}, {"logit_bias": {10**6: 1.0}}],
    ids=["top_k", "stop_token_ids", "logit_bias"],
)
async def test_tokens_beyond_the_vocabulary_are_a_status_and_no_event(stack, sampling):
    request = inference_pb2.GenerateRequest(messages=[user("hi")], sampling=sampling)
    call = stack.inference.Generate(request, timeout=LIMIT_S)
    reason, message = await reason_of(call.read())
    assert reason == "INVALID_ARGUMENT"
    assert message.startswith(f"sampling.{next(iter(sampling))}: 1000000")


async def test_what_a_turn_cannot_be_is_refused(stack):
    session_id = (await opened(stack)).session_id
    several = inference_pb2.GenerateRequest(session_id=session_id, messages=[user("hi")])
    several.sampling.n = 2
    raw = inference_pb2.GenerateRequest(session_id=session_id)
    raw.prompt.text = "hi"
    foreign = inference_pb2.GenerateRequest(
        session_id=session_id, model="autoglm-phone-10b", messages=[user("hi")]
    )
    for request, reason in (
        (several, "INVALID_ARGUMENT"),
        (raw, "INVALID_ARGUMENT"),
        (foreign, "MODEL_NOT_FOUND"),
    ):
        call = stack.inference.Generate(request, timeout=LIMIT_S)
        assert (await reason_of(call.read()))[0] == reason


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        pytest.param({"idle_ttl": duration_pb2.Duration(seconds=9)}, "10 to", id="short"),
        pytest.param({"absolute_ttl": duration_pb2.Duration(seconds=10**9)}, "604800", id="long"),
        pytest.param({"idle_ttl": duration_pb2.Duration(seconds=-5)}, "idle_ttl", id="negative"),
        pytest.param({"cache_scope": 77}, "CACHE_SCOPE_SESSION", id="scope"),
        pytest.param(
            {"history": session_pb2.HistoryPolicy(image_count=11)}, "0 to 10", id="images"
        ),
        pytest.param(
            {"messages": [conversation_pb2.Message(text="who?")]}, "messages[0].role", id="role"
        ),
    ],
)
async def test_a_session_that_cannot_be_is_refused_by_field_value_and_limit(stack, fields, word):
    request = session_pb2.CreateSessionRequest(**fields)
    reason, message = await reason_of(service(stack).CreateSession(request, timeout=LIMIT_S))
    assert reason == "INVALID_ARGUMENT"
    assert word in message


async def test_a_page_token_of_somebody_elses_making_is_refused(stack):
    request = session_pb2.ListSessionsRequest(page_token="AAAA")  # noqa: S106  # no password
    assert (await reason_of(service(stack).ListSessions(request, timeout=LIMIT_S)))[0] == (
        "INVALID_ARGUMENT"
    )
