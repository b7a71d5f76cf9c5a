"""For each reason of the error table: a situation in which requests fail with it, and why some have none."""

import asyncio
import base64
import io
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from failing_stack import SLOW, Failing, FailingStack, failing_stack
from grpc import aio
from hotline.v1 import conversation_pb2, inference_pb2
from PIL import Image
from rest_stack import MODEL_NAME
from sim_stack import LIMIT_S, hello

from services.gateway.sessions.sessions import Wanted
from services.runtime.error_table import Reason

ELSEWHERE = {
    Reason.PERMISSION_DENIED: "reserved: a key has limits, and what it may not see it is told not to exist",
    Reason.GENERATION_NOT_FOUND: "only who comes back: test_rest_resume.py",
    Reason.GENERATION_EXPIRED: "only who comes back: test_rest_resume.py",
    Reason.GENERATION_CONFLICT: "only who comes back: test_rest_resume.py",
}
"""Reasons that a first REST request cannot meet, by construction; the edge's way with them is tested before a stand-in."""


@dataclass(frozen=True)
class Stacks:
    """What the situations are made on."""

    usual: FailingStack
    """Two generations run, one waits."""
    slow: FailingStack
    """Reads a prompt for longer than a generation may take."""
    dying: FailingStack
    """Its engine dies after some hundred tokens, and comes back."""


@asynccontextmanager
async def failing_stacks(folder: Callable[[], Path]) -> AsyncGenerator[Stacks, None]:
    """All of them. `folder` makes an empty one."""
    # The engine's warm-up takes some of its tokens.
    dying = {"sim_fault": {"die_after_tokens": 200}}
    async with (
        failing_stack(folder(), max_running=2, max_waiting=1) as usual,
        failing_stack(folder(), SLOW, generation_timeout_s=0.6) as slow,
        failing_stack(folder(), dying) as mortal,
    ):
        yield Stacks(usual, slow, mortal)


Situation: TypeAlias = "Callable[[Stacks], AbstractAsyncContextManager[Failing]]"


def text_parts(text: str) -> dict[str, Any]:
    """The native form of one question."""
    return {
        "messages": [conversation_pb2.Message(role=conversation_pb2.ROLE_USER, text=text)],
    }


def image_parts(data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """One question that is an image, as REST body and natively."""
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    content = [{"type": "image_url", "image_url": {"url": url}}]
    part = conversation_pb2.Part(image=conversation_pb2.ImagePart(data=data))
    message = conversation_pb2.Message(
        role=conversation_pb2.ROLE_USER, parts=conversation_pb2.PartList(parts=[part])
    )
    return {"messages": [{"role": "user", "content": content}]}, {"messages": [message]}


def _by_itself(make: Callable[[Stacks], Failing]) -> Situation:
    """A request that always fails."""

    @asynccontextmanager
    async def situation(stacks: Stacks) -> AsyncGenerator[Failing, None]:
        yield make(stacks)

    return situation


def _invalid(stacks: Stacks) -> Failing:
    return Failing(stacks.usual, {"temperature": 9}, {"sampling": {"temperature": 9}})


def _media(stacks: Stacks) -> Failing:
    return Failing(stacks.usual, *image_parts(b"<html>404</html>"))


def _context(stacks: Stacks) -> Failing:
    text = "Read this. " * 20_000
    body = {"messages": [{"role": "user", "content": text}]}
    return Failing(stacks.usual, body, text_parts(text))


def _too_large(stacks: Stacks) -> Failing:
    return Failing(stacks.usual, *image_parts(b"\x89PNG\r\n\x1a\n" + bytes(21 * 2**20)))


@asynccontextmanager
async def _busy(stacks: Stacks) -> AsyncGenerator[Failing, None]:
    """A session that has a turn running."""
    sessions = stacks.usual.behind.app.sessions
    session = await sessions.keep(sessions.begin("free", MODEL_NAME, Wanted()))
    named = {"session_id": session.session_id.hex()}
    async with sessions.store.turn(session.session_id, 0):
        yield Failing(stacks.usual, named, named)


@asynccontextmanager
async def _full(stacks: Stacks) -> AsyncGenerator[Failing, None]:
    stack = stacks.usual.behind
    async with _running(stacks.usual, "free", 3):
        await stack.until(lambda: stack.app.admission.seat_count == 3)
        yield Failing(stacks.usual)


@asynccontextmanager
async def _key_used_up(stacks: Stacks) -> AsyncGenerator[Failing, None]:
    async with _running(stacks.usual, "single", 1):
        yield Failing(stacks.usual, key="single")


@asynccontextmanager
async def _shutting_down(stacks: Stacks) -> AsyncGenerator[Failing, None]:
    registry = stacks.usual.behind.app.registry
    registry.fail_all()  # as a drain does whose grace is over
    try:
        yield Failing(stacks.usual)
    finally:
        registry._closed = False


@asynccontextmanager
async def _dying(stacks: Stacks) -> AsyncGenerator[Failing, None]:
    await stacks.dying.behind.until_ready()
    yield Failing(
        stacks.dying,
        # A seeded sampler's state goes with its engine.
        {"max_tokens": 2000, "ignore_eos": True, "seed": 1},
        {"sampling": {"max_tokens": 2000, "ignore_eos": True, "seed": 1}},
    )


def _slow(stacks: Stacks) -> Failing:
    text = "Read this. " * 400
    body = {"messages": [{"role": "user", "content": text}]}
    return Failing(stacks.slow, body, text_parts(text))


@asynccontextmanager
async def _cancelled(stacks: Stacks) -> AsyncGenerator[Failing, None]:
    """Whatever waits is cancelled, as by its owner's InferenceService.Cancel."""
    stack = stacks.usual.behind

    async def cancel() -> None:
        while True:
            await stack.until(lambda: stack.app.admission.waiting_count == 1)
            ids = {i for _, i in stack.app.registry._running} - {"free-0", "free-1"}
            for generation_id in ids:
                await stack.inference.Cancel(
                    inference_pb2.CancelRequest(generation_id=generation_id),
                    metadata=tuple(stacks.usual.headers().items()),
                )
            await stack.until(lambda: stack.app.admission.waiting_count == 0)

    async with _running(stacks.usual, "free", 2):
        cancelling = asyncio.create_task(cancel())
        try:
            yield Failing(stacks.usual)
        finally:
            cancelling.cancel()
            await asyncio.wait((cancelling,))


@asynccontextmanager
async def _features_lost(stacks: Stacks) -> AsyncGenerator[Failing, None]:
    """The worker's store loses what is pushed, as by bursts of other images, before each generation begins."""
    store = stacks.usual.behind.worker._service._store
    pinned = store.pinned

    def forgetful(digests: Any) -> Any:
        for entry in list(store._entries.values()):
            store._drop(entry)
        return pinned(digests)

    store.pinned = forgetful
    try:
        yield Failing(stacks.usual, *image_parts(_png()))
    finally:
        del store.pinned


FAULTS = ("model", "renderer")
"""Where the gateway can be made to fail: in the servicer, and in the generation's own task."""


@asynccontextmanager
async def fault(stacks: Stacks, where: str = "renderer") -> AsyncGenerator[Failing, None]:
    """A fault in the gateway's own code, whose words are nobody's business."""
    pool = stacks.usual.behind.app.pool

    def broken(*_: object, **__: object) -> Any:
        raise KeyError("hunter2 in /srv/hotline/services/gateway/pool.py")

    setattr(pool, where, broken)
    try:
        yield Failing(stacks.usual)
    finally:
        delattr(pool, where)


@asynccontextmanager
async def _running(stack: FailingStack, key: str, count: int) -> AsyncGenerator[None, None]:
    """So many generations of a key, which hold their places."""
    metadata = tuple(stack.headers(key).items())
    calls: list[aio.UnaryStreamCall] = []
    for number in range(count):
        request = hello(8000, generation_id=f"{key}-{number}")
        request.disconnect.cancel = True
        call = stack.behind.inference.Generate(request, timeout=LIMIT_S, metadata=metadata)
        calls.append(call)
        if number < 2:  # the third one waits
            await call.read()
    try:
        yield
    finally:
        for call in calls:
            call.cancel()
        await stack.behind.until(lambda: stack.behind.app.admission.seat_count == 0)


def _png() -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (112, 112), (40, 50, 60)).save(data, "PNG")
    return data.getvalue()


PROVOKED: dict[Reason, Situation] = {
    Reason.INVALID_ARGUMENT: _by_itself(_invalid),
    Reason.INVALID_MEDIA: _by_itself(_media),
    Reason.CONTEXT_LENGTH_EXCEEDED: _by_itself(_context),
    Reason.REQUEST_TOO_LARGE: _by_itself(_too_large),
    Reason.UNAUTHENTICATED: _by_itself(lambda stacks: Failing(stacks.usual, key="wrong")),
    Reason.MODEL_NOT_FOUND: _by_itself(
        lambda stacks: Failing(stacks.usual, {"model": "gpt-17"}, {"model": "gpt-17"})
    ),
    Reason.SESSION_NOT_FOUND: _by_itself(
        lambda stacks: Failing(stacks.usual, {"session_id": "0" * 32}, {"session_id": "0" * 32})
    ),
    Reason.SESSION_BUSY: _busy,
    Reason.FEATURES_MISSING: _features_lost,
    Reason.OVERLOADED: _full,
    Reason.RATE_LIMITED: _key_used_up,
    Reason.UNAVAILABLE: _shutting_down,
    Reason.ENGINE_DEAD: _dying,
    Reason.DEADLINE_EXCEEDED: _by_itself(_slow),
    Reason.CANCELLED: _cancelled,
    Reason.UNIMPLEMENTED: _by_itself(
        lambda stacks: Failing(
            stacks.usual,
            {"guided_regex": "a+"},
            {"sampling": {"structured_output": {"regex": "a+"}}},
        )
    ),
    Reason.INTERNAL: fault,
}
"""How a chat request comes to fail with each reason."""

OTHER_ROUTES = {Reason.ROUTE_NOT_FOUND: "/health/nope"}
"""Reasons that chat requests do not meet, and a GET that does."""

WAITING_HELPS = {
    Reason.OVERLOADED,
    Reason.RATE_LIMITED,
    Reason.UNAVAILABLE,
    Reason.ENGINE_DEAD,
    Reason.FEATURES_MISSING,
    Reason.SESSION_BUSY,
}
"""Reasons with Retry-After, and RetryInfo."""
INTERNALS = re.compile(
    r"Traceback|File \"|\.py\b|hunter2|KeyError|site-packages|/srv|grpc|unix:|services\.|envoy|0x[0-9a-f]{6}",
    re.IGNORECASE,
)
"""What no message may hold."""
