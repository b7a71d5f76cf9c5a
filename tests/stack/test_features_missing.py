"""Features that the worker lost between the push and the generation are pushed, and if need be rendered, once more."""

import asyncio
import io
from contextlib import contextmanager

import pytest
from hotline.v1 import conversation_pb2, error_pb2, inference_pb2
from PIL import Image
from sim_stack import LIMIT_S, sim_stack, started_tokenizer, started_worker


def picture_request(colour: tuple[int, int, int]) -> inference_pb2.GenerateRequest:
    """A question about an image that no test before has sent."""
    data = io.BytesIO()
    Image.new("RGB", (112, 112), colour).save(data, "PNG")
    part = conversation_pb2.Part(image=conversation_pb2.ImagePart(data=data.getvalue()))
    message = conversation_pb2.Message(
        role=conversation_pb2.ROLE_USER, parts=conversation_pb2.PartList(parts=[part])
    )
    request = inference_pb2.GenerateRequest(messages=[message])
    request.sampling.max_tokens, request.sampling.ignore_eos = 5, True
    return request


@pytest.fixture(scope="module")
async def behind():
    worker = await started_worker()
    tokenizer = await started_tokenizer(worker.port)
    yield tokenizer, worker
    await tokenizer.stop()
    await worker.stop()


@contextmanager
def losing(store, times: int):
    """A worker's store that is emptied, as by a burst of other images, before so many of its generations begin."""
    pinned, left = store.pinned, times

    def forgetful(digests):
        nonlocal left
        if left:
            left -= 1
            for entry in list(store._entries.values()):
                store._drop(entry)
        return pinned(digests)

    store.pinned = forgetful
    try:
        yield
    finally:
        del store.pinned


async def events_of(stack, request) -> list:
    async with asyncio.timeout(LIMIT_S):
        return [event async for event in stack.inference.Generate(request, timeout=LIMIT_S)]


async def test_what_the_worker_lost_is_pushed_again_and_the_client_sees_nothing_of_it(behind):
    tokenizer, worker = behind
    async with sim_stack(tokenizer, worker) as stack:
        with losing(worker._service._store, 1):
            events = await events_of(stack, picture_request((250, 10, 10)))
        assert events[-1].finished.usage.completion_tokens == 5
        assert sum(event.HasField("started") for event in events) == 1


async def test_what_the_tokenizer_lost_as_well_is_rendered_again(behind):
    tokenizer, worker = behind
    store = tokenizer._service._servicer._store
    get, calls = store.get, []

    def forgetful(digests):
        calls.append(digests)
        if len(calls) == 2:
            for digest in list(store._features):
                store._forget(digest)
        return get(digests)

    async with sim_stack(tokenizer, worker) as stack:
        store.get = forgetful
        try:
            with losing(worker._service._store, 1):
                events = await events_of(stack, picture_request((10, 250, 10)))
        finally:
            del store.get
        assert events[-1].finished.usage.completion_tokens == 5
        assert len(calls) == 3


async def test_what_is_lost_twice_fails_with_its_reason(behind):
    tokenizer, worker = behind
    async with sim_stack(tokenizer, worker) as stack:
        with losing(worker._service._store, 2):
            events = await events_of(stack, picture_request((10, 10, 250)))
        assert events[-1].failed.reason == error_pb2.ERROR_REASON_FEATURES_MISSING
        assert events[-1].failed.retryable
