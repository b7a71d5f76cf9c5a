"""Every reason of the error table, reached through a real Envoy: what REST, the openai client and native clients see."""

import asyncio
import json
from typing import Any

import httpx
import openai
import pytest
from edge_process import error_of
from failing_stack import PLAIN, Failing, authorization, post, posted, still_answers
from provoked_errors import (
    ELSEWHERE,
    FAULTS,
    INTERNALS,
    OTHER_ROUTES,
    PROVOKED,
    WAITING_HELPS,
    failing_stacks,
    fault,
    image_parts,
)
from sim_stack import LIMIT_S

from services.gateway.choice import Choice
from services.runtime.error_table import TABLE, Reason

CLASSES = {
    400: openai.BadRequestError,
    401: openai.AuthenticationError,
    403: openai.PermissionDeniedError,
    404: openai.NotFoundError,
    409: openai.ConflictError,
    429: openai.RateLimitError,
    500: openai.InternalServerError,
    501: openai.InternalServerError,
    503: openai.InternalServerError,
    504: openai.InternalServerError,
}
"""What openai-python raises; for any other status it has no class of its own."""
PARAMS = {
    Reason.INVALID_ARGUMENT: "temperature",
    Reason.INVALID_MEDIA: "messages[0].content[0]",
    Reason.CONTEXT_LENGTH_EXCEEDED: "messages",
    Reason.REQUEST_TOO_LARGE: "messages[0].content[0]",
    Reason.MODEL_NOT_FOUND: "model",
    Reason.FEATURES_MISSING: "messages",
    Reason.UNIMPLEMENTED: "guided_regex",
}


@pytest.fixture(scope="module")
async def stacks(tmp_path_factory):
    async with failing_stacks(lambda: tmp_path_factory.mktemp("edge")) as running:
        yield running


def check_retry_after(answer: httpx.Response, reason: Reason) -> None:
    if reason in WAITING_HELPS:
        assert TABLE[reason].retryable
        assert int(answer.headers["retry-after"]) >= 1
    else:
        assert "retry-after" not in answer.headers


EACH = pytest.mark.parametrize("reason", list(PROVOKED))


def test_every_reason_of_the_table_is_reached_or_it_is_said_why_not():
    listed = [*PROVOKED, *OTHER_ROUTES, *ELSEWHERE]
    assert len(listed) == len(set(listed))
    assert set(listed) == set(TABLE)
    assert all(ELSEWHERE.values())


@EACH
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_rest_client_reads_status_type_code_param_and_when_to_come_back(
    stacks, reason, stream
):
    async with PROVOKED[reason](stacks) as failing:
        answer = await post(failing, stream=stream)
    row = TABLE[reason]
    if reason is Reason.ENGINE_DEAD and stream:
        assert answer.status_code == 200  # it had begun
        error = after_the_first_byte(answer.text)
    else:
        assert answer.status_code == row.http_status, answer.text
        error = error_of(answer)
        check_retry_after(answer, reason)
    assert (error["type"], error["code"]) == (row.openai_type, row.openai_code)
    if reason in PARAMS:
        assert error["param"] == PARAMS[reason]
    assert error["message"]
    assert not INTERNALS.search(answer.text)
    assert answer.headers["x-request-id"]
    await still_answers(failing)


def after_the_first_byte(text: str) -> dict[str, Any]:
    """The error of a stream that began well: its last event, and no clean end."""
    events = text.split("\n\n")
    assert events[-1] == ""
    assert all(event.startswith("data: {") for event in events[:-1])
    assert len(events) > 2
    *chunks, last = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
    assert all("error" not in chunk for chunk in chunks)
    assert not any(choice["finish_reason"] for chunk in chunks for choice in chunk["choices"])
    assert list(last) == ["error"]
    assert sorted(last["error"]) == ["code", "message", "param", "type"]
    error: dict[str, Any] = last["error"]
    return error


@EACH
async def test_the_openai_client_raises_its_own_class(stacks, reason):
    row = TABLE[reason]
    async with PROVOKED[reason](stacks) as failing:
        key = authorization(failing)["authorization"].removeprefix("Bearer ")
        call = {"model": "autoglm-phone-tiny", **PLAIN, **failing.body}
        own = ("guided_regex", "ignore_eos", "session_id")
        extra = {name: call.pop(name) for name in own if name in call}
        async with openai.AsyncOpenAI(
            base_url=f"{failing.stack.url}/v1", api_key=key, max_retries=0, timeout=LIMIT_S
        ) as client:
            with pytest.raises(openai.APIStatusError) as raised:
                await client.chat.completions.create(**call, extra_body=extra)
    assert type(raised.value) is CLASSES.get(row.http_status, openai.APIStatusError)
    assert raised.value.status_code == row.http_status
    assert (raised.value.type, raised.value.code) == (row.openai_type, row.openai_code)


@pytest.mark.parametrize("reason", list(TABLE))
@pytest.mark.parametrize("route", ["fail", "bare"])
async def test_the_openai_client_knows_every_reason_also_those_that_are_not_raised_yet(
    edge, reason, route
):
    row = TABLE[reason]
    async with openai.AsyncOpenAI(
        base_url=f"{edge.url}/v1", api_key="EMPTY", max_retries=0
    ) as client:
        with pytest.raises(openai.APIStatusError) as raised:
            await client.chat.completions.create(
                model="x", messages=[], extra_body={"do": route, "reason": reason.value}
            )
    if route == "fail":
        assert raised.value.status_code == row.http_status
        assert (raised.value.type, raised.value.code) == (row.openai_type, row.openai_code)
        assert type(raised.value) is CLASSES.get(row.http_status, openai.APIStatusError)
    assert raised.value.message


@pytest.mark.parametrize(("reason", "path"), OTHER_ROUTES.items())
async def test_a_route_that_does_not_exist_is_told_by_gateway_and_edge_alike(stacks, reason, path):
    async with httpx.AsyncClient(base_url=stacks.usual.url) as client:
        for unknown in (path, "/v1/nope"):
            answer = await client.get(unknown)
            error, row = error_of(answer), TABLE[reason]
            assert answer.status_code == row.http_status
            assert (error["type"], error["code"]) == (row.openai_type, row.openai_code)


async def test_a_body_above_the_edges_limit_has_the_same_words_as_an_image_above_the_gateways(
    stacks,
):
    body, _ = image_parts(bytes(30 * 2**20))  # 40 MiB of base64
    answer = await post(Failing(stacks.usual, body))
    row = TABLE[Reason.REQUEST_TOO_LARGE]
    error = error_of(answer)
    assert answer.status_code == row.http_status
    assert (error["type"], error["code"]) == (row.openai_type, row.openai_code)


@pytest.mark.parametrize("where", FAULTS)
async def test_a_fault_of_ours_wherever_it_is_tells_nothing_of_itself(stacks, where):
    async with fault(stacks, where) as failing:
        answer = await post(failing)
    assert (answer.status_code, error_of(answer)["code"]) == (500, "internal_error")
    assert not INTERNALS.search(answer.text + str(answer.headers))
    await still_answers(failing)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_fault_of_ours_after_the_begin_tells_nothing_of_itself(stacks, stream, monkeypatch):
    feed, count = Choice.feed, 0

    def faulty(choice: Choice, step: Any) -> None:
        nonlocal count
        count += 1
        if count == 20:
            raise RuntimeError("hunter2 at 0xdeadbeef in services.gateway.choice")
        feed(choice, step)

    monkeypatch.setattr(Choice, "feed", faulty)
    failing = Failing(stacks.usual)
    answer = await post(failing, stream=stream, max_tokens=100, ignore_eos=True)
    if stream:
        assert answer.status_code == 200
        error = after_the_first_byte(answer.text)
    else:
        assert answer.status_code == 500
        error = error_of(answer)
    assert (error["type"], error["code"]) == ("server_error", "internal_error")
    assert not INTERNALS.search(answer.text)
    await still_answers(failing)


async def test_the_openai_client_raises_an_api_error_inside_a_stream(stacks):
    async with PROVOKED[Reason.ENGINE_DEAD](stacks) as failing:
        stack = failing.stack
        async with openai.AsyncOpenAI(
            base_url=f"{stack.url}/v1", api_key=stack.texts["free"], max_retries=0, timeout=LIMIT_S
        ) as client:
            chunks = await client.chat.completions.create(
                model="autoglm-phone-tiny",
                messages=[{"role": "user", "content": "Hi"}],
                max_tokens=2000,
                stream=True,
                extra_body={"ignore_eos": True},
            )
            assert (await anext(chunks)).choices[0].delta.content
            with pytest.raises(openai.APIError) as raised:
                await drained(chunks)
    assert type(raised.value) is openai.APIError
    assert (raised.value.type, raised.value.code) == ("service_unavailable_error", "engine_dead")


async def test_the_openai_client_that_gives_up_raises_its_timeout_and_frees_its_place(stacks):
    admission = stacks.usual.behind.app.admission
    async with openai.AsyncOpenAI(
        base_url=f"{stacks.usual.url}/v1",
        api_key=stacks.usual.texts["free"],
        max_retries=0,
        timeout=0.5,
    ) as client:
        with pytest.raises(openai.APITimeoutError):
            await client.chat.completions.create(
                model="autoglm-phone-tiny",
                messages=PLAIN["messages"],
                extra_body={"ignore_eos": True},  # 8,000 tokens take it some ten seconds
            )
    await stacks.usual.behind.until(lambda: admission.seat_count == 0)


async def test_the_openai_client_comes_back_when_it_is_told_to_and_is_answered(stacks):
    statuses, refused = [], asyncio.Event()

    async def heard(answer: httpx.Response) -> None:
        statuses.append(answer.status_code)
        refused.set()

    async with (
        httpx.AsyncClient(event_hooks={"response": [heard]}) as http,
        openai.AsyncOpenAI(
            base_url=f"{stacks.usual.url}/v1",
            api_key=stacks.usual.texts["single"],
            max_retries=2,
            http_client=http,
        ) as client,
    ):
        async with PROVOKED[Reason.RATE_LIMITED](stacks):
            call = asyncio.create_task(
                client.chat.completions.create(model="autoglm-phone-tiny", **PLAIN)
            )
            await asyncio.wait_for(refused.wait(), LIMIT_S)
        assert (await asyncio.wait_for(call, LIMIT_S)).choices
    assert statuses == [429, 200]


async def drained(chunks: Any) -> None:
    async for _ in chunks:
        pass


async def test_two_hundred_failures_of_five_kinds_at_once_leave_nothing_behind(stacks):
    kinds = (
        Reason.INVALID_ARGUMENT,
        Reason.INVALID_MEDIA,
        Reason.MODEL_NOT_FOUND,
        Reason.UNAUTHENTICATED,
        Reason.UNIMPLEMENTED,
    )
    asked = []
    async with httpx.AsyncClient(base_url=stacks.usual.url, timeout=LIMIT_S) as client:
        for reason in kinds:
            async with PROVOKED[reason](stacks) as failing:
                asked += [posted(client, failing, stream=bool(n % 2)) for n in range(40)]
        answers = await asyncio.gather(*asked)
    # 429: three generations at once are all that fit.
    assert {answer.status_code for answer in answers} <= {400, 401, 404, 429, 501}
    admission = stacks.usual.behind.app.admission
    await stacks.usual.behind.until(lambda: admission.seat_count == 0)
    assert (admission.held_bytes, admission.held_tokens) == (0, 0)
