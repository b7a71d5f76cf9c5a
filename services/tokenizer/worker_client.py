"""The tokenizer's side of WorkerService.PutFeatures; protobuf stops here."""

from collections.abc import AsyncGenerator, Mapping, Sequence

from grpc import aio
from hotline.v1 import worker_pb2, worker_pb2_grpc

from services.runtime.channel import open_channel
from services.runtime.errors import InvalidArgumentError
from services.runtime.logs import request_metadata
from services.runtime.status import from_rpc_error
from services.tokenizer import wire
from services.tokenizer.features import Feature

CHUNK_BYTES = 1024 * 1024
"""The contract's bound on one chunk."""


class WorkerClient:
    """Kept-alive channels to the workers of the settings, by name; each connects when it is first needed.

    Args:
        addresses: worker name -> address.
        timeout_s: for one push.
    """

    def __init__(self, addresses: Mapping[str, str], timeout_s: float) -> None:
        self._addresses, self._timeout_s = dict(addresses), timeout_s
        self._channels: dict[str, aio.Channel] = {}

    def require(self, worker: str) -> None:
        """Raises InvalidArgumentError where no such worker is configured."""
        if worker not in self._addresses:
            raise InvalidArgumentError("worker", worker, "the name of a configured worker")

    async def push(self, worker: str, features: Sequence[Feature]) -> int:
        """Send tensors to a worker.

        Returns:
            The tensor bytes that were sent.

        Raises:
            InvalidArgumentError: no such worker is configured.
            ServiceError: the worker's own refusal, UnavailableError or DeadlineExceededError.
        """
        self.require(worker)
        if worker not in self._channels:
            self._channels[worker] = open_channel(self._addresses[worker])
        stub: worker_pb2_grpc.WorkerServiceAsyncStub = worker_pb2_grpc.WorkerServiceStub(
            self._channels[worker]
        )
        sent = _Sent()
        try:
            await stub.PutFeatures(
                sent.pieces(features), timeout=self._timeout_s, metadata=request_metadata()
            )
        except aio.AioRpcError as error:
            raise from_rpc_error(error, worker or "the worker") from error
        return sent.size_bytes

    async def close(self) -> None:
        """Close every channel. Idempotent."""
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close()


class _Sent:
    """One upload, and how much of it went out: a worker that has everything may answer early."""

    def __init__(self) -> None:
        self.size_bytes = 0

    async def pieces(
        self, features: Sequence[Feature]
    ) -> AsyncGenerator[worker_pb2.PutFeaturesRequest, None]:
        for feature in features:
            yield worker_pb2.PutFeaturesRequest(header=wire.feature_header(feature))
            data = feature.patches.data
            for start in range(0, len(data), CHUNK_BYTES):
                chunk = data[start : start + CHUNK_BYTES]
                yield worker_pb2.PutFeaturesRequest(chunk=chunk)
                self.size_bytes += len(chunk)
