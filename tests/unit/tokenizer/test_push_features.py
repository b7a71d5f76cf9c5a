"""PushFeatures over gRPC, to a real server that stands for a worker."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from hotline.v1 import feature_pb2, tokenizer_pb2, tokenizer_pb2_grpc, worker_pb2, worker_pb2_grpc
from PIL import Image
from tokenizer_kit import Encoded, Settings, Stub, user

from services.runtime.channel import create_server, open_channel
from services.runtime.digest import feature_digest
from services.runtime.errors import InvalidArgumentError
from services.runtime.interceptors import ErrorInterceptor
from services.runtime.lifecycle import Process
from services.runtime.status import DETAILS_KEY
from services.tokenizer.app import TokenizerApp

MIB = 1024 * 1024


class Worker(worker_pb2_grpc.WorkerServiceServicer):
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.tensors: list[tuple[feature_pb2.FeatureHeader, bytes]] = []
        self.largest_chunk_bytes = 0
        self.peers: set[str] = set()
        self.refuses = self.hangs = self.answers_at_once = False

    async def PutFeatures(
        self, requests: AsyncIterator[worker_pb2.PutFeaturesRequest], context: Any
    ) -> worker_pb2.PutFeaturesResponse:
        self.peers.add(context.peer())
        if self.refuses:
            raise InvalidArgumentError("header.size_bytes", 1, "2")
        if self.hangs:
            await asyncio.Event().wait()
        if self.answers_at_once:
            return worker_pb2.PutFeaturesResponse()
        async for request in requests:
            if request.WhichOneof("piece") == "header":
                self.tensors.append((request.header, b""))
            else:
                header, data = self.tensors[-1]
                self.largest_chunk_bytes = max(self.largest_chunk_bytes, len(request.chunk))
                self.tensors[-1] = (header, data + request.chunk)
        stored = [header.feature_digest for header, _ in self.tensors]
        return worker_pb2.PutFeaturesResponse(feature_digests=stored)


@pytest.fixture
async def worker_and_port() -> AsyncGenerator[tuple[Worker, int], None]:
    server = create_server([ErrorInterceptor()])
    worker = Worker()  # type: ignore[abstract]  # only one method is called
    worker_pb2_grpc.add_WorkerServiceServicer_to_server(worker, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield worker, port
    await server.stop(None)


@pytest.fixture
def worker(worker_and_port: tuple[Worker, int]) -> Worker:
    return worker_and_port[0]


@pytest.fixture
async def pushing_stub(
    tokenizer_settings: Settings, worker_and_port: tuple[Worker, int]
) -> AsyncGenerator[Stub, None]:
    addresses = {"worker-0": f"127.0.0.1:{worker_and_port[1]}", "gone": "127.0.0.1:1"}
    settings = tokenizer_settings(
        workers=addresses, max_pixels=5_000_000, feature_store_bytes=8 * MIB, push_timeout_s=1.0
    )
    process = Process(TokenizerApp(settings), settings)
    await process.start()
    async with open_channel(f"127.0.0.1:{process.port}") as channel:
        yield tokenizer_pb2_grpc.TokenizerServiceStub(channel)
    await process.stop()


async def render(stub: Stub, *files: bytes) -> list[bytes]:
    """Digests of the files' features."""
    response = await stub.Render(tokenizer_pb2.RenderRequest(messages=[user(*files, "x")]))
    return [placement.feature_digest for placement in response.features]


async def push(stub: Stub, digests: list[bytes], worker: str = "worker-0") -> int:
    request = tokenizer_pb2.PushFeaturesRequest(feature_digests=digests, worker=worker)
    return (await stub.PushFeatures(request)).pushed_bytes


async def refused(stub: Stub, digests: list[bytes], worker: str) -> error_details_pb2.ErrorInfo:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await push(stub, digests, worker)
    details = dict(caught.value.trailing_metadata() or ())[DETAILS_KEY]
    info = error_details_pb2.ErrorInfo()
    status_pb2.Status.FromString(details).details[0].Unpack(info)
    return info


@pytest.fixture
def screen(encoded: Encoded) -> bytes:
    return encoded(Image.radial_gradient("L").resize((1080, 2400)).convert("RGB"))


async def test_tensors_arrive_whole_and_verified_in_chunks_of_at_most_1_mib(
    pushing_stub: Stub, worker: Worker, screen: bytes, encoded: Encoded
) -> None:
    digests = await render(pushing_stub, screen, encoded())
    pushed_bytes = await push(pushing_stub, digests)
    assert [header.feature_digest for header, _ in worker.tensors] == digests
    assert pushed_bytes == sum(len(data) for _, data in worker.tensors) > 7_000_000
    assert worker.largest_chunk_bytes == MIB
    for header, data in worker.tensors:
        assert header.modality == feature_pb2.MODALITY_IMAGE
        assert header.data_type == feature_pb2.DATA_TYPE_UINT8
        assert header.size_bytes == len(data)
        grid = (header.grid.t, header.grid.h, header.grid.w)
        digest = feature_digest(
            int(header.modality), int(header.data_type), list(header.shape), grid, data
        )
        assert digest == header.feature_digest


async def test_pushes_to_one_worker_share_one_connection(
    pushing_stub: Stub, worker: Worker, encoded: Encoded
) -> None:
    digests = await render(pushing_stub, encoded())
    for _ in range(3):
        await push(pushing_stub, digests)
    assert len(worker.peers) == 1


async def test_a_digest_named_twice_travels_once(
    pushing_stub: Stub, worker: Worker, encoded: Encoded
) -> None:
    digests = await render(pushing_stub, encoded())
    await push(pushing_stub, digests * 2)
    assert len(worker.tensors) == 1


async def test_a_worker_that_has_everything_may_answer_at_once(
    pushing_stub: Stub, worker: Worker, screen: bytes
) -> None:
    worker.answers_at_once = True
    assert await push(pushing_stub, await render(pushing_stub, screen)) <= 8 * MIB


async def test_missing_digests_are_named(pushing_stub: Stub, encoded: Encoded) -> None:
    unknown = hashlib.sha256(b"never rendered").digest()
    digests = [*await render(pushing_stub, encoded()), unknown]
    info = await refused(pushing_stub, digests, "worker-0")
    assert (info.reason, info.metadata["digests"]) == ("FEATURES_MISSING", unknown.hex())


async def test_tensors_that_had_to_make_room_are_missing_until_they_are_rendered_again(
    pushing_stub: Stub, screen: bytes, encoded: Encoded
) -> None:
    first = await render(pushing_stub, screen)
    await render(pushing_stub, encoded(Image.new("RGB", (1080, 2400), "blue")))
    assert (await refused(pushing_stub, first, "worker-0")).reason == "FEATURES_MISSING"
    await render(pushing_stub, screen)
    assert await push(pushing_stub, first) > 0


@pytest.mark.parametrize("name", ["", "worker-1", "127.0.0.1:50051", "unix:/run/worker"])
async def test_only_configured_workers_are_dialled(
    pushing_stub: Stub, encoded: Encoded, name: str
) -> None:
    info = await refused(pushing_stub, await render(pushing_stub, encoded()), name)
    assert (info.reason, info.metadata["field"]) == ("INVALID_ARGUMENT", "worker")


@pytest.mark.parametrize(
    ("digests", "field"),
    [
        pytest.param([], "feature_digests", id="none"),
        pytest.param([b"x" * 32] * 65, "feature_digests", id="too-many"),
        pytest.param([b"x" * 31], "feature_digests[0]", id="too-short"),
    ],
)
async def test_digests_that_are_none_are_refused(
    pushing_stub: Stub, digests: list[bytes], field: str
) -> None:
    info = await refused(pushing_stub, digests, "worker-0")
    assert (info.reason, info.metadata["field"]) == ("INVALID_ARGUMENT", field)


async def test_a_worker_s_refusal_keeps_its_reason(
    pushing_stub: Stub, worker: Worker, encoded: Encoded
) -> None:
    worker.refuses = True
    info = await refused(pushing_stub, await render(pushing_stub, encoded()), "worker-0")
    assert (info.reason, info.metadata["field"]) == ("INVALID_ARGUMENT", "header.size_bytes")


async def test_a_worker_that_hangs_is_given_up_at_the_deadline(
    pushing_stub: Stub, worker: Worker, encoded: Encoded
) -> None:
    worker.hangs = True
    info = await refused(pushing_stub, await render(pushing_stub, encoded()), "worker-0")
    assert info.reason == "DEADLINE_EXCEEDED"


async def test_a_worker_that_is_not_there_is_unavailable(
    pushing_stub: Stub, encoded: Encoded
) -> None:
    info = await refused(pushing_stub, await render(pushing_stub, encoded()), "gone")
    assert info.reason == "UNAVAILABLE"
