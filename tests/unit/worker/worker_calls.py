"""What the worker's tests say to a worker, and what they hear."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpc import aio
from hotline.v1 import feature_pb2, generation_pb2, sampling_pb2, worker_pb2, worker_pb2_grpc

from services.runtime.channel import open_channel
from services.runtime.digest import feature_digest
from services.runtime.errors import ServiceError
from services.runtime.status import from_rpc_error
from services.worker.engine import Grid
from services.worker.model import read_model

MODEL_PATH = Path(__file__).parents[3] / "deploy/models/autoglm-phone-tiny"
MODEL = read_model(MODEL_PATH, {})
GRID = Grid(1, 4, 4)


@dataclass
class Answer:
    """All events of one generation."""

    started: list[worker_pb2.WorkerStarted] = field(default_factory=list)
    tokens: list[worker_pb2.WorkerTokens] = field(default_factory=list)
    finished: dict[int, worker_pb2.WorkerFinished] = field(default_factory=dict)

    def ids(self, choice_index: int = 0) -> list[int]:
        """The output; fails where a piece is missing, doubled or out of order."""
        ids: list[int] = []
        for piece in self.tokens:
            if piece.choice_index == choice_index:
                assert piece.position == len(ids)
                ids.extend(piece.token_ids)
        return ids

    def reason(self, choice_index: int = 0) -> str:
        """Such as `STOP`."""
        number = self.finished[choice_index].reason
        return generation_pb2.FinishReason.Name(number).removeprefix("FINISH_REASON_")

    def add(self, event: worker_pb2.WorkerGenerateEvent) -> None:
        """Take one event; fails where the stream's shape is wrong."""
        kind = event.WhichOneof("event")
        assert bool(self.started) == (kind != "started"), "exactly one `started`, and first"
        if kind == "started":
            self.started.append(event.started)
        elif kind == "tokens":
            assert event.tokens.choice_index not in self.finished
            assert event.tokens.token_ids
            self.tokens.append(event.tokens)
        else:
            assert event.finished.choice_index not in self.finished
            self.finished[event.finished.choice_index] = event.finished


@dataclass(frozen=True)
class Image:
    """An upload: header and bytes."""

    header: feature_pb2.FeatureHeader
    data: bytes

    def placed(self, offset: int) -> feature_pb2.FeaturePlacement:
        """Where it stands in a prompt."""
        grid = self.header.grid
        return feature_pb2.FeaturePlacement(
            feature_digest=self.header.feature_digest,
            modality=feature_pb2.MODALITY_IMAGE,
            offset=offset,
            length=grid.t * grid.h * grid.w // 4,
            grid=grid,
        )

    def prompt(self, before: Sequence[int] = (5,), after: Sequence[int] = (6,)) -> list[int]:
        """Ids with this image's placeholders."""
        assert MODEL.image_token_id is not None
        return [*before, *[MODEL.image_token_id] * self.placed(0).length, *after]


def image(seed: int = 0, grid: Grid = GRID, data: bytes | None = None) -> Image:
    """An image of one value, or of the given bytes."""
    assert MODEL.images is not None
    shape = (grid.patches, MODEL.images.patch_bytes)
    data = bytes([seed % 256]) * (shape[0] * shape[1]) if data is None else data
    header = feature_pb2.FeatureHeader(
        feature_digest=feature_digest(1, 1, shape, grid, data),
        modality=feature_pb2.MODALITY_IMAGE,
        data_type=feature_pb2.DATA_TYPE_UINT8,
        shape=shape,
        grid=feature_pb2.PatchGrid(t=grid.t, h=grid.h, w=grid.w),
        size_bytes=len(data),
    )
    return Image(header, data)


def upload(
    *images: Image, chunk_bytes: int = 1024 * 1024
) -> Iterator[worker_pb2.PutFeaturesRequest]:
    """The messages of one PutFeatures call."""
    for picture in images:
        yield worker_pb2.PutFeaturesRequest(header=picture.header)
        for begin in range(0, len(picture.data), chunk_bytes):
            yield worker_pb2.PutFeaturesRequest(chunk=picture.data[begin : begin + chunk_bytes])


def request(
    generation_id: str = "g", ids: Sequence[int] = (5, 6, 7), **fields: Any
) -> worker_pb2.WorkerGenerateRequest:
    """A request; `sampling` may be a dictionary."""
    sampling = fields.pop("sampling", {})
    if isinstance(sampling, dict):
        sampling = sampling_pb2.SamplingParameters(**sampling)
    return worker_pb2.WorkerGenerateRequest(
        generation_id=generation_id, prompt_token_ids=ids, sampling=sampling, **fields
    )


class Client:
    """Calls one worker."""

    def __init__(self, channel: aio.Channel) -> None:
        self.channel = channel
        self.stub: worker_pb2_grpc.WorkerServiceAsyncStub = worker_pb2_grpc.WorkerServiceStub(
            channel
        )

    def open(self, message: worker_pb2.WorkerGenerateRequest, timeout_s: float = 30) -> Any:
        """The call itself, for cancelling."""
        return self.stub.Generate(message, timeout=timeout_s)

    async def generate(self, *args: Any, timeout_s: float = 30, **fields: Any) -> Answer:
        """A whole generation. Raises the ServiceError that the worker meant."""
        answer = Answer()
        try:
            async for event in self.open(request(*args, **fields), timeout_s):
                answer.add(event)
        except aio.AioRpcError as error:
            raise from_rpc_error(error, "worker") from error
        return answer

    async def put(self, *images: Image, **options: Any) -> list[bytes]:
        """Upload; returns the digests."""
        return await self.put_messages(upload(*images, **options))

    async def put_messages(self, messages: Iterator[worker_pb2.PutFeaturesRequest]) -> list[bytes]:
        """Upload whatever it is."""
        try:
            response = await self.stub.PutFeatures(messages, timeout=30)
        except aio.AioRpcError as error:
            raise from_rpc_error(error, "worker") from error
        return list(response.feature_digests)

    async def status(self) -> worker_pb2.GetStatusResponse:
        """GetStatus."""
        return await self.stub.GetStatus(worker_pb2.GetStatusRequest(), timeout=10)

    async def abort(self, generation_id: str) -> bool:
        """Abort."""
        try:
            response = await self.stub.Abort(
                worker_pb2.AbortRequest(generation_id=generation_id), timeout=10
            )
        except aio.AioRpcError as error:
            raise from_rpc_error(error, "worker") from error
        return response.aborted

    async def until_running(self, count: int, timeout_s: float = 5) -> None:
        """Wait until so many generations run or wait in the engine. Fails after the time."""
        async with asyncio.timeout(timeout_s):
            while True:
                status = await self.status()
                if status.running + status.waiting == count:
                    return
                await asyncio.sleep(0.005)

    async def until_state(self, state: str, timeout_s: float = 5) -> None:
        """Wait until the worker is in this state. Fails after the time."""
        async with asyncio.timeout(timeout_s):
            while (await self.status()).state != state:
                await asyncio.sleep(0.005)


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Client]:
    """A client of the worker at an address."""
    channel = open_channel(address)
    try:
        yield Client(channel)
    finally:
        await channel.close()


async def failure(call: Any) -> ServiceError:
    """The ServiceError that an awaitable raises."""
    try:
        await call
    except ServiceError as error:
        return error
    raise AssertionError("it did not fail")
