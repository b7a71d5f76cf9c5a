"""The gateway's one Detokenise stream: merged while a write waits, whole whatever happens, told when it breaks."""

import asyncio
from dataclasses import replace

import pytest
from hotline.v1 import conversation_pb2, tokenizer_pb2, tokenizer_pb2_grpc

from services.gateway.interfaces import TextOptions, TextOutput
from services.gateway.text_connection import (
    IDS_PER_HANDLE,
    IDS_PER_MESSAGE,
    INPUTS_PER_MESSAGE,
)
from services.gateway.text_link import TextLink
from services.runtime.channel import open_channel
from services.runtime.errors import InternalError, ServiceError, UnavailableError
from services.runtime.lifecycle import Process, Service
from services.runtime.settings import ServiceSettings

PLAIN = TextOptions(stop=(), split_reasoning=False, thinking_closed=False, ignore_eos=False)
LIMIT_S = 20.0


class Spelling(Service, tokenizer_pb2_grpc.TokenizerServiceServicer):
    """Spells ids as numbers, slowly; counts messages."""

    def __init__(self) -> None:
        super().__init__()
        self.messages = 0
        self.sizes: list[tuple[int, int, int]] = []
        """Of each message: inputs, ids, most ids of one handle."""
        self.bytes: list[int] = []

    def register(self, server):
        tokenizer_pb2_grpc.add_TokenizerServiceServicer_to_server(self, server)
        return ["hotline.v1.TokenizerService"]

    async def warm(self) -> None:
        return

    async def close(self) -> None:
        return

    async def Detokenise(self, requests, context):
        async for request in requests:
            self.messages += 1
            self.bytes.append(request.ByteSize())
            counts = [len(item.tokens.token_ids) for item in request.inputs]
            self.sizes.append((len(counts), sum(counts), max(counts)))
            outputs = []
            for item in request.inputs:
                if item.WhichOneof("act") == "tokens":
                    text = "".join(f"{token_id} " for token_id in item.tokens.token_ids)
                    last = item.tokens.last
                    outputs.append(
                        tokenizer_pb2.DetokeniseOutput(handle=item.handle, text=text, finished=last)
                    )
            yield tokenizer_pb2.DetokeniseResponse(outputs=outputs)

    async def Render(self, request, context): ...
    async def PushFeatures(self, request, context): ...
    async def Tokenize(self, request, context): ...
    async def GetTokenizerStatus(self, request, context): ...


class Listener:
    """Collects what a handle is told."""

    def __init__(self) -> None:
        self.text, self.ended = "", asyncio.Event()
        self.error: ServiceError | None = None

    def __call__(self, output: TextOutput | ServiceError) -> None:
        if isinstance(output, ServiceError):
            self.error = output
            self.ended.set()
            return
        self.text += output.text
        if output.finished:
            self.ended.set()


@pytest.fixture
async def spelling():
    service = Spelling()
    settings = ServiceSettings(address="127.0.0.1:0", drain_notice_s=0, drain_grace_s=0)
    process = Process(service, settings)
    await process.start()
    async with open_channel(f"127.0.0.1:{process.port}") as channel:
        link = TextLink("tokenizer-0", channel)
        yield service, process, link
        await link.close()
    await process.stop()


async def test_ids_that_wait_are_merged_and_none_is_lost_or_moved(spelling):
    service, _, link = spelling
    listeners = [Listener() for _ in range(20)]
    handles = [link.open(PLAIN, 0, listener) for listener in listeners]
    for position in range(50):
        for number, handle in enumerate(handles):
            handle.send([number * 100 + position], last=position == 49)
    for listener in listeners:
        await asyncio.wait_for(listener.ended.wait(), LIMIT_S)
    for number, listener in enumerate(listeners):
        assert listener.text == "".join(f"{number * 100 + position} " for position in range(50))
    assert service.messages < 20
    assert link.open_count == 0


async def test_texts_with_large_tools_go_in_several_messages(spelling):
    service, _, link = spelling
    render = conversation_pb2.RenderOptions()
    render.tools.add().update({"type": "function", "function": {"description": "x" * 100_000}})
    listeners = [Listener() for _ in range(60)]
    for listener in listeners:
        handle = link.open(replace(PLAIN, tool_use=render), 0, listener)
        handle.send([1], last=True)
    for listener in listeners:
        await asyncio.wait_for(listener.ended.wait(), LIMIT_S)
        assert listener.text == "1 "
    assert sum(service.bytes) > 60 * 100_000
    assert max(service.bytes) < 400_000


async def test_an_idle_link_sends_each_id_at_once(spelling):
    service, _, link = spelling
    listener = Listener()
    handle = link.open(PLAIN, 0, listener)
    for position in range(5):
        handle.send([position], last=position == 4)
        async with asyncio.timeout(LIMIT_S):
            while not listener.text.endswith(f"{position} "):
                await asyncio.sleep(0.001)
    assert service.messages >= 5


async def test_a_handle_that_is_closed_hears_nothing_more(spelling):
    _, _, link = spelling
    closed, other = Listener(), Listener()
    handle, second = link.open(PLAIN, 0, closed), link.open(PLAIN, 0, other)
    handle.send([1], last=False)
    handle.close()
    handle.close()
    handle.send([2], last=True)
    second.send([3], last=True)
    await asyncio.wait_for(other.ended.wait(), LIMIT_S)
    assert closed.text == ""
    assert not closed.ended.is_set()


async def test_a_link_that_breaks_tells_everybody_and_opens_again(spelling):
    _, process, link = spelling
    listener = Listener()
    handle = link.open(PLAIN, 0, listener)
    handle.send([1], last=False)
    async with asyncio.timeout(LIMIT_S):
        while not listener.text:
            await asyncio.sleep(0.001)
    await process.stop()
    await asyncio.wait_for(listener.ended.wait(), LIMIT_S)
    assert listener.error is not None
    assert listener.error.row.http_status in (499, 503)
    again = Process(
        Spelling(), ServiceSettings(address=f"127.0.0.1:{process.port}", drain_notice_s=0)
    )
    await again.start()
    try:
        second = Listener()
        async with asyncio.timeout(LIMIT_S):
            while second.error is not None or not second.ended.is_set():
                second = Listener()
                link.open(PLAIN, 0, second).send([7], last=True)
                await second.ended.wait()
        assert second.text == "7 "
    finally:
        await link.close()
        await again.stop()


async def test_a_peer_that_is_not_there_is_unavailable():
    async with open_channel("127.0.0.1:1") as channel:
        link = TextLink("tokenizer-0", channel)
        listener = Listener()
        link.open(PLAIN, 0, listener).send([1], last=True)
        await asyncio.wait_for(listener.ended.wait(), LIMIT_S)
        await link.close()
    assert isinstance(listener.error, UnavailableError)


async def test_a_message_is_bounded_in_inputs_and_ids_and_a_long_text_leaves_room(spelling):
    service, _, link = spelling
    long = [Listener() for _ in range(12)]
    for listener in long:
        link.open(PLAIN, 0, listener).send([7] * 5000, last=True)
    many = [Listener() for _ in range(5000)]
    for listener in many:
        link.open(PLAIN, 0, listener).send([8], last=True)
    for listener in (*long, *many):
        await asyncio.wait_for(listener.ended.wait(), LIMIT_S)
    assert all(listener.text == "7 " * 5000 for listener in long)
    assert all(listener.text == "8 " for listener in many)
    inputs, ids, of_one = (max(sizes) for sizes in zip(*service.sizes, strict=True))
    assert inputs <= INPUTS_PER_MESSAGE
    assert ids <= IDS_PER_MESSAGE
    assert of_one <= IDS_PER_HANDLE


async def test_what_is_closed_before_it_was_written_is_never_mentioned(spelling):
    service, _, link = spelling
    gone, other = Listener(), Listener()
    handle = link.open(PLAIN, 0, gone)
    handle.send([1], last=True)
    handle.close()
    link.open(PLAIN, 0, other).send([2], last=True)
    await asyncio.wait_for(other.ended.wait(), LIMIT_S)
    assert sum(inputs for inputs, _, _ in service.sizes) == 2  # the other one's open and its ids
    assert not gone.ended.is_set()


async def test_an_abandoned_stream_tells_its_texts_at_once_and_the_next_text_has_a_new_one(
    spelling,
):
    _, _, link = spelling
    first, second = Listener(), Listener()
    handle = link.open(PLAIN, 0, first)
    link.abandon()
    assert isinstance(first.error, UnavailableError)
    assert link.open_count == 0
    handle.send([1], last=False)
    handle.close()
    link.open(PLAIN, 0, second).send([2], last=True)
    await asyncio.wait_for(second.ended.wait(), LIMIT_S)
    assert second.text == "2 "


async def test_a_fault_in_one_reader_is_told_to_it_and_hurts_no_other(spelling):
    _, _, link = spelling
    told: list[object] = []

    def faulty(output: TextOutput | ServiceError) -> None:
        told.append(output)
        if not isinstance(output, ServiceError):
            raise RuntimeError("a fault of ours")

    other = Listener()
    link.open(PLAIN, 0, faulty).send([1], last=False)
    link.open(PLAIN, 0, other).send([2], last=True)
    await asyncio.wait_for(other.ended.wait(), LIMIT_S)
    assert other.text == "2 "
    assert isinstance(told[-1], InternalError)
    assert link.open_count == 0
