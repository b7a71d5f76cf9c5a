"""The Detokenise stream between this gateway and one tokenizer; protobuf stops here.

Every generation of the gateway shares it. Whatever gathered while a write was under way goes into the next message,
so that a busy loop sends few, large messages and an idle one sends each id at once.
"""

import asyncio
from collections.abc import Sequence
from typing import TypeAlias

from google.protobuf import json_format
from grpc import aio
from hotline.v1 import tokenizer_pb2, tokenizer_pb2_grpc

from services.gateway.events import Action
from services.gateway.interfaces import TextOptions, TextOutput, TextSink
from services.runtime.errors import InternalError, ServiceError, UnavailableError
from services.runtime.logs import get_logger
from services.runtime.status import from_rpc_error

_log = get_logger()
_Input = tokenizer_pb2.DetokeniseInput
_Call: TypeAlias = (
    "aio.StreamStreamCall[tokenizer_pb2.DetokeniseRequest, tokenizer_pb2.DetokeniseResponse]"
)

INPUTS_PER_MESSAGE = 4096
"""The contract's bound on one message; the rest follows in the next."""


class TextHandle:
    """The text side of one choice; see interfaces.TextStream."""

    def __init__(self, link: "TextLink", number: int, choice_index: int, sink: TextSink) -> None:
        self._link, self.number, self.choice_index, self.sink = link, number, choice_index, sink

    def send(self, token_ids: Sequence[int], last: bool) -> None:
        """Queue ids."""
        self._link.queue_tokens(self.number, token_ids, last)

    def close(self) -> None:
        """Forget the handle here and there."""
        self._link.forget(self.number)


class TextLink:
    """One bidi stream; opened on first use, and again after it broke.

    What waits to be written is bounded by max_tokens of the running generations: ids of one handle are merged.
    """

    def __init__(self, name: str, channel: aio.Channel) -> None:
        self.name = name
        self._stub: tokenizer_pb2_grpc.TokenizerServiceAsyncStub = (
            tokenizer_pb2_grpc.TokenizerServiceStub(channel)
        )
        self._handles: dict[int, TextHandle] = {}
        self._waiting: list[_Input] = []
        self._something_waits = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._next = 0

    @property
    def open_count(self) -> int:
        """Choices whose text is under way here."""
        return len(self._handles)

    def open(self, options: TextOptions, choice_index: int, sink: TextSink) -> TextHandle:
        """Begin the text of one choice."""
        self._next += 1
        handle = TextHandle(self, self._next, choice_index, sink)
        self._handles[handle.number] = handle
        opening = tokenizer_pb2.DetokeniseOpen(
            stop=options.stop,
            split_reasoning=options.split_reasoning,
            thinking_closed=options.thinking_closed,
            ignore_eos=options.ignore_eos,
        )
        self._queue(_Input(handle=handle.number, open=opening))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=f"text link {self.name}")
        return handle

    def queue_tokens(self, number: int, token_ids: Sequence[int], last: bool) -> None:
        """Queue ids of a handle; they join its ids that still wait."""
        if number not in self._handles:
            return
        for waiting in reversed(self._waiting[-64:]):  # a short look back: merging is an economy
            if waiting.handle == number:
                if waiting.WhichOneof("act") == "tokens" and not waiting.tokens.last:
                    waiting.tokens.token_ids.extend(token_ids)
                    waiting.tokens.last = last
                    return
                break
        tokens = tokenizer_pb2.DetokeniseTokens(token_ids=token_ids, last=last)
        self._queue(_Input(handle=number, tokens=tokens))

    def forget(self, number: int) -> None:
        """Drop a handle; the tokenizer is told unless it ended there already."""
        if self._handles.pop(number, None) is not None:
            self._queue(_Input(handle=number, close=True))

    async def close(self) -> None:
        """End the stream. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def _queue(self, item: _Input) -> None:
        self._waiting.append(item)
        self._something_waits.set()

    async def _run(self) -> None:
        call = self._stub.Detokenise()
        writer = asyncio.create_task(self._write(call), name=f"text link writer {self.name}")
        failure: ServiceError = UnavailableError(f"{self.name} ended its stream.", retry_delay_s=1)
        try:
            async for response in call:
                for output in response.outputs:
                    self._deliver(output)
        except aio.AioRpcError as error:
            failure = from_rpc_error(error, self.name)
        finally:
            call.cancel()
            writer.cancel()
            await asyncio.wait((writer,))
            self._break(failure)

    async def _write(self, call: _Call) -> None:
        try:
            while True:
                await self._something_waits.wait()
                batch = self._waiting[:INPUTS_PER_MESSAGE]
                del self._waiting[:INPUTS_PER_MESSAGE]
                if not self._waiting:
                    self._something_waits.clear()
                await call.write(tokenizer_pb2.DetokeniseRequest(inputs=batch))
        except (aio.AioRpcError, asyncio.InvalidStateError) as error:
            _log.info("text link broke", upstream=self.name, cause=type(error).__name__)

    def _deliver(self, output: tokenizer_pb2.DetokeniseOutput) -> None:
        handle = self._handles.get(output.handle)
        if handle is None:
            return  # closed while this was on its way
        if output.error:
            _log.error("text failed", upstream=self.name, error=output.error)
            del self._handles[output.handle]
            handle.sink(InternalError())
            return
        if output.finished:
            del self._handles[output.handle]
        handle.sink(_text_output(output, handle.choice_index))

    def _break(self, failure: ServiceError) -> None:
        """Tell every open handle that the stream is gone; what waited belonged to them."""
        handles, self._handles = list(self._handles.values()), {}
        self._waiting.clear()
        self._something_waits.clear()
        for handle in handles:
            handle.sink(failure)


def _text_output(output: tokenizer_pb2.DetokeniseOutput, choice_index: int) -> TextOutput:
    action = None
    if output.HasField("action"):
        arguments = json_format.MessageToDict(output.action.arguments)
        action = Action(choice_index, output.action.name, arguments)
    return TextOutput(
        text=output.text,
        reasoning=output.reasoning,
        consumed_tokens=output.consumed_tokens,
        finished=output.finished,
        stop_match=output.stop_match,
        end_tag=output.end_tag,
        action=action,
    )
