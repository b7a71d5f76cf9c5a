"""What the worker's tests say on a GenerateMany stream, and what they hear."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from google.protobuf.message import Message
from hotline.v1 import error_pb2, worker_pb2
from worker_calls import Answer, Client, request

LIMIT_S = 20.0


class Peer:
    """One stream, as a gateway keeps it."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.answers: dict[int, Answer] = {}
        self.failed: dict[int, worker_pb2.GenerateManyEnd] = {}
        self.loads: list[worker_pb2.WorkerLoad] = []
        self.messages: list[worker_pb2.GenerateManyResponse] = []

    async def say(self, *inputs: Message) -> None:
        """One message."""
        await self.call.write(worker_pb2.GenerateManyRequest(inputs=inputs))

    async def begin(self, *handles: int, **fields: Any) -> None:
        """Begin generations named `g<handle>`, all alike."""
        await self.say(*(begin(handle, **fields) for handle in handles))

    async def abort(self, handle: int) -> None:
        """End one."""
        await self.say(worker_pb2.GenerateManyInput(handle=handle, abort=True))

    async def hear(self) -> worker_pb2.GenerateManyResponse:
        """The next message; fails where its shape is wrong."""
        async with asyncio.timeout(LIMIT_S):
            message = await self.call.read()
        assert isinstance(message, worker_pb2.GenerateManyResponse), "the stream has ended"
        self.messages.append(message)
        for handle, cached in zip(
            message.started_handles, message.started_cached_tokens, strict=True
        ):
            answer = self.answers.setdefault(handle, Answer())
            answer.add(worker_pb2.WorkerGenerateEvent(started={"cached_tokens": cached}))
        self._take_runs(message)
        for end in message.ended:
            if end.failed:
                self.failed[end.handle] = end
            else:
                self.answers[end.handle].add(worker_pb2.WorkerGenerateEvent(finished=end.finished))
        if message.HasField("load"):
            self.loads.append(message.load)
        return message

    def _take_runs(self, message: worker_pb2.GenerateManyResponse) -> None:
        ids, logprobs = list(message.token_ids), {e.run: e.positions for e in message.logprobs}
        runs = zip(
            message.handles,
            message.choice_indexes,
            message.positions,
            message.counts,
            strict=True,
        )
        for index, (handle, choice, position, count) in enumerate(runs):
            tokens = worker_pb2.WorkerTokens(
                choice_index=choice,
                position=position,
                token_ids=ids[:count],
                logprobs=logprobs.get(index, ()),
            )
            del ids[:count]
            self.answers[handle].add(worker_pb2.WorkerGenerateEvent(tokens=tokens))
        assert not ids

    async def until(self, condition: Any) -> None:
        """Hear until it holds."""
        async with asyncio.timeout(LIMIT_S):
            while not condition():
                await self.hear()

    async def whole(self, handle: int, choice_count: int = 1) -> Answer:
        """One generation to its end."""
        await self.until(
            lambda: handle in self.answers and len(self.answers[handle].finished) == choice_count
        )
        return self.answers[handle]

    async def failure(self, handle: int) -> tuple[str, worker_pb2.GenerateManyEnd]:
        """The failure of a handle: its reason's name, and all of it."""
        await self.until(lambda: handle in self.failed)
        end = self.failed[handle]
        return error_pb2.ErrorReason.Name(end.failed).removeprefix("ERROR_REASON_"), end


def begin(handle: int, generation_id: str = "", **fields: Any) -> worker_pb2.GenerateManyInput:
    """The beginning of one generation."""
    wanted = request(generation_id or f"g{handle}", **fields)
    return worker_pb2.GenerateManyInput(handle=handle, generate=wanted)


@asynccontextmanager
async def stream(client: Client) -> AsyncIterator[Peer]:
    """A stream that has told its load; cancelled at the end."""
    call = client.stub.GenerateMany()
    peer = Peer(call)
    try:
        await peer.hear()
        yield peer
    finally:
        call.cancel()
