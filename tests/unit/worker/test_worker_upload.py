"""PutFeatures over gRPC."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest
from hotline.v1 import feature_pb2, worker_pb2
from worker_calls import GRID, MODEL, Client, Image, failure, image, request, upload
from worker_running import StartWorker

from services.runtime.digest import feature_digest
from services.runtime.error_table import Reason
from services.runtime.errors import OverloadedError
from services.worker.engine import Grid
from services.worker.features import FeatureStore
from services.worker.limits import Limits
from services.worker.upload import MAX_TENSORS, receive
from services.worker.wire import pieces

LONG = {"max_tokens": 8000, "ignore_eos": True}
Message = worker_pb2.PutFeaturesRequest


def changed(**fields: Any) -> Image:
    picture = image(77)
    header = feature_pb2.FeatureHeader()
    header.CopyFrom(picture.header)
    for name, value in fields.items():
        header.ClearField(name)  # type: ignore[arg-type]
        header.MergeFrom(feature_pb2.FeatureHeader(**{name: value}))
    return Image(header, picture.data)


def grid(t: int, h: int, w: int) -> feature_pb2.PatchGrid:
    return feature_pb2.PatchGrid(t=t, h=h, w=w)


async def test_a_tensor_is_stored_and_its_digest_comes_back(start_worker: StartWorker):
    client = (await start_worker()).client
    picture = image(1)
    assert await client.put(picture) == [picture.header.feature_digest]
    assert (await client.status()).feature_bytes == len(picture.data)


async def test_several_tensors_come_in_one_call_in_small_chunks(start_worker: StartWorker):
    client = (await start_worker()).client
    pictures = [image(seed) for seed in range(3)]
    digests = await client.put(*pictures, chunk_bytes=1000)
    assert digests == [picture.header.feature_digest for picture in pictures]


async def test_a_tensor_that_is_here_need_not_be_sent_again(start_worker: StartWorker):
    client = (await start_worker()).client
    picture = image(1)
    await client.put(picture)
    assert await client.put(Image(picture.header, b"")) == [picture.header.feature_digest]
    assert await client.put(picture) == [picture.header.feature_digest]
    assert (await client.status()).feature_bytes == len(picture.data)


async def test_a_tensor_large_enough_to_be_hashed_in_a_thread_is_stored(start_worker: StartWorker):
    client = (await start_worker()).client
    assert MODEL.images is not None
    picture = image(9, MODEL.images.largest_grid())
    assert await client.put(picture) == [picture.header.feature_digest]


async def test_an_empty_call_stores_nothing(worker: Client):
    assert await worker.put() == []


BAD_HEADERS = [
    pytest.param({"feature_digest": b"short"}, "header.feature_digest", id="digest size"),
    pytest.param({"modality": feature_pb2.MODALITY_AUDIO}, "header.modality", id="audio"),
    pytest.param({"data_type": feature_pb2.DATA_TYPE_FLOAT32}, "header.data_type", id="float32"),
    pytest.param({"data_type": 0}, "header.data_type", id="no type"),
    pytest.param({"shape": [16]}, "header.shape", id="one dimension"),
    pytest.param({"shape": [16, 1176]}, "header.shape", id="frames doubled"),
    pytest.param({"shape": [2**32 - 1, 2**32 - 1]}, "header.shape", id="huge shape"),
    pytest.param({"grid": grid(1, 3, 4)}, "header.grid", id="odd grid"),
    pytest.param({"grid": grid(1, 2**31, 2**31)}, "header.grid", id="huge grid"),
    pytest.param({"grid": grid(0, 4, 4)}, "header.grid", id="no frame"),
    pytest.param({"grid": grid(1, 2, 8)}, "header.feature_digest", id="grid of another image"),
    pytest.param({"size_bytes": 2**63}, "header.size_bytes", id="huge size"),
    pytest.param({"feature_digest": b"x" * 32}, "header.feature_digest", id="wrong digest"),
]


@pytest.mark.parametrize(("fields", "field"), BAD_HEADERS)
async def test_a_bad_header_is_refused_and_nothing_is_kept(
    start_worker: StartWorker, fields: dict[str, Any], field: str
):
    client = (await start_worker()).client
    error = await failure(client.put(changed(**fields)))
    assert (error.reason, error.field) == (Reason.INVALID_ARGUMENT, field)
    assert (await client.status()).feature_bytes == 0


def cut(picture: Image) -> Iterator[Message]:
    yield Message(header=picture.header)
    yield Message(chunk=picture.data[:-1])


def cut_before_another(picture: Image) -> Iterator[Message]:
    yield from cut(picture)
    yield from upload(image(5))


def too_long(picture: Image) -> Iterator[Message]:
    yield from upload(picture)
    yield Message(chunk=b"x")


def no_header(picture: Image) -> Iterator[Message]:
    yield Message(chunk=picture.data)


def empty_chunk(picture: Image) -> Iterator[Message]:
    yield Message(header=picture.header)
    yield Message(chunk=b"")


def large_chunk(picture: Image) -> Iterator[Message]:
    yield Message(header=picture.header)
    yield Message(chunk=b"x" * (1024 * 1024 + 1))


def other_bytes(picture: Image) -> Iterator[Message]:
    yield Message(header=picture.header)
    yield Message(chunk=bytes(len(picture.data)))


def nothing(picture: Image) -> Iterator[Message]:
    yield Message()


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        pytest.param(cut, "chunk", id="cut short"),
        pytest.param(cut_before_another, "chunk", id="cut before another"),
        pytest.param(no_header, "chunk", id="no header"),
        pytest.param(empty_chunk, "chunk", id="empty chunk"),
        pytest.param(large_chunk, "chunk", id="chunk above 1 MiB"),
        pytest.param(other_bytes, "header.feature_digest", id="other bytes"),
        pytest.param(nothing, "piece", id="no piece"),
    ],
)
async def test_a_bad_upload_is_refused_and_nothing_of_it_is_kept(
    start_worker: StartWorker, messages: Any, field: str
):
    client = (await start_worker()).client
    error = await failure(client.put_messages(messages(image(77))))
    assert (error.reason, error.field) == (Reason.INVALID_ARGUMENT, field)
    assert (await client.status()).feature_bytes == 0
    assert await client.put(image(77))


async def test_bytes_beyond_the_size_are_refused_but_the_whole_tensor_before_stays(
    start_worker: StartWorker,
):
    client = (await start_worker()).client
    picture = image(77)
    assert (await failure(client.put_messages(too_long(picture)))).field == "chunk"
    assert (await client.status()).feature_bytes == len(picture.data)


async def test_more_tensors_than_the_limit_in_one_call_are_refused(start_worker: StartWorker):
    client = (await start_worker()).client
    error = await failure(client.put(*(image(seed) for seed in range(MAX_TENSORS + 1))))
    assert error.field == "header"


async def test_old_tensors_make_room_for_new_ones(start_worker: StartWorker):
    client = (await start_worker(feature_store_bytes=1024 * 1024)).client
    assert MODEL.images is not None
    pictures = [image(seed, Grid(1, 20, 20)) for seed in range(6)]
    for picture in pictures:
        await client.put(picture)
    assert (await client.status()).feature_bytes <= 1024 * 1024
    first, last = pictures[0], pictures[-1]
    missing = await failure(client.generate(ids=first.prompt(), features=[first.placed(1)]))
    assert missing.reason is Reason.FEATURES_MISSING
    answer = await client.generate(
        ids=last.prompt(), features=[last.placed(1)], sampling={"max_tokens": 1}
    )
    assert answer.ids()


async def test_tensors_in_use_are_kept_and_a_full_store_is_overloaded(start_worker: StartWorker):
    client = (await start_worker(feature_store_bytes=1024 * 1024, sim_step_ms=20)).client
    kept = [image(seed, Grid(1, 20, 20)) for seed in range(4)]  # 0.94 MB of the 1.05
    await client.put(*kept)
    ids = [token for picture in kept for token in picture.prompt(before=(5,), after=())]
    length = kept[0].placed(0).length
    features = [picture.placed(1 + index * (length + 1)) for index, picture in enumerate(kept)]
    call = client.open(request(ids=ids, features=features, sampling=LONG))
    await call.read()
    assert (await failure(client.put(image(9, Grid(1, 20, 20))))).reason is Reason.OVERLOADED
    call.cancel()
    await client.until_running(0)
    assert await client.put(image(9, Grid(1, 20, 20)))


async def test_a_tensor_is_forgotten_after_its_time(start_worker: StartWorker):
    client = (await start_worker(feature_ttl_s=0.05)).client
    await client.put(image(1))
    await asyncio.sleep(0.06)
    assert (await client.status()).feature_bytes == 0


async def test_a_stalled_upload_gives_its_room_back_when_the_call_ends():
    picture = image(1)
    store = FeatureStore(len(picture.data), ttl_s=60, clock=time.monotonic)
    stalled = asyncio.Event()

    async def messages() -> AsyncGenerator[Message, None]:
        yield Message(header=picture.header)
        stalled.set()
        await asyncio.Event().wait()

    call = asyncio.create_task(receive(pieces(messages()), store, Limits(MODEL, 8192, 4)))
    await stalled.wait()
    with pytest.raises(OverloadedError), store.reserve(1):
        pass
    call.cancel()
    await asyncio.wait([call])
    with store.reserve(len(picture.data)):
        assert store.held_bytes == 0


def test_equal_bytes_of_another_grid_have_another_digest():
    data = image(3).data
    other = feature_digest(1, 1, (16, 588), (1, 2, 8), data)
    assert image(3).header.feature_digest == feature_digest(1, 1, (16, 588), GRID, data) != other
