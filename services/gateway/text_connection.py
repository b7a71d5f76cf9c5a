"""One Detokenise stream between this gateway and one tokenizer; protobuf stops here.

Every generation of the gateway shares it. Whatever gathered while a write was under way goes into the next message,
so that a busy loop sends few, large messages and an idle one sends each id at once.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

from google.protobuf import json_format
from grpc import aio
from hotline.v1 import tokenizer_pb2, tokenizer_pb2_grpc

from services.gateway.events import Action, PositionLogprobs, ToolCall
from services.gateway.interfaces import TextOptions, TextOutput, TextSink
from services.gateway.logprob_wire import messages, packed
from services.runtime.errors import InternalError, ServiceError, UnavailableError
from services.runtime.logs import get_logger

_log = get_logger()
_Input = tokenizer_pb2.DetokeniseInput
_Call: TypeAlias = (
    "aio.StreamStreamCall[tokenizer_pb2.DetokeniseRequest, tokenizer_pb2.DetokeniseResponse]"
)

INPUTS_PER_MESSAGE = 4096
"""The contract's bound on one message; the rest follows in the next."""

IDS_PER_MESSAGE = 16_384
"""Ids in one message, all handles together; the rest follows in the next."""

IDS_PER_HANDLE = 2_048
"""Ids of one handle in one message, so that a long text that is rebuilt leaves room for the others."""


BYTES_LIKE_AN_ID = 16
"""Of tools, so that a few texts with the largest ones fill a message."""


class TextHandle:
    """The text side of one choice; see interfaces.TextStream. Holds what waits to be written for it."""

    def __init__(
        self, connection: "TextConnection", number: int, options: TextOptions, sink: TextSink
    ) -> None:
        self._connection, self._options = connection, options
        self.number, self.sink = number, sink
        self.choice_index = 0
        self.queued = False
        """Whether the connection knows that something waits."""
        self.has_logprobs = False
        """Whether any were sent: to look for them in every output would cost what little else there is in it."""
        self.has_tools = options.tool_use is not None
        self.done = False
        """Ended, closed or broken: nothing is sent or told any more."""
        self._opened = False
        self._ids: list[int] = []
        self._logprobs: list[PositionLogprobs | None] = []
        self._last = False

    def send(
        self,
        token_ids: Sequence[int],
        last: bool,
        logprobs: Sequence[PositionLogprobs | None] = (),
    ) -> None:
        """Queue ids."""
        if self.done:
            return
        self._ids.extend(token_ids)
        if logprobs:
            self.has_logprobs = True
            self._logprobs.extend(logprobs)
        self._last = last
        if not self.queued:
            self._connection.queue(self)

    def close(self) -> None:
        """Forget the handle here and there."""
        if not self.done:
            self.done = True
            self._ids.clear()
            self._logprobs.clear()
            self._connection.forget(self)
            if self._opened and not self.queued:
                self._connection.queue(self)

    def write(self, inputs: list[_Input], limit: int) -> int:
        """Append what waits, up to `limit` ids; returns how many, tools counted as ids by their bytes.

        `queued` stays set where there is more.
        """
        number, weight = self.number, 0
        self.queued = False
        if self.done:
            if self._opened:
                inputs.append(_Input(handle=number, close=True))
            return 0
        if not self._opened:
            self._opened = True
            options = self._options
            opening = tokenizer_pb2.DetokeniseOpen(
                stop=options.stop,
                split_reasoning=options.split_reasoning,
                thinking_closed=options.thinking_closed,
                ignore_eos=options.ignore_eos,
            )
            if options.tool_use is not None:
                opening.tools.extend(options.tool_use.tools)
                opening.tool_choice.CopyFrom(options.tool_use.tool_choice)
                weight = opening.ByteSize() // BYTES_LIKE_AN_ID
            inputs.append(_Input(handle=number, open=opening))
        ids, last = self._ids, self._last
        if len(ids) > limit:
            self._ids, ids, last = ids[limit:], ids[:limit], False
            self.queued = True
        else:
            self._ids, self._last = [], False
        if ids or last:
            tokens = tokenizer_pb2.DetokeniseTokens(token_ids=ids, last=last)
            if self._logprobs:
                tokens.logprobs.extend(messages(self._logprobs[: len(ids)]))
                del self._logprobs[: len(ids)]
            inputs.append(_Input(handle=number, tokens=tokens))
        return len(ids) + weight


class TextConnection:
    """One bidi stream, from its opening to its end, which all its open texts hear of.

    What waits to be written is bounded by max_tokens of the running generations: ids of one handle are merged.
    """

    def __init__(self, name: str, stub: "tokenizer_pb2_grpc.TokenizerServiceAsyncStub") -> None:
        self.name = name
        self.alive = True
        self._handles: dict[int, TextHandle] = {}
        self._waiting: deque[TextHandle] = deque()
        self._something_waits = asyncio.Event()
        self._next = 0
        self.task = asyncio.create_task(self._run(stub), name=f"text link {name}")

    @property
    def open_count(self) -> int:
        """Choices whose text is under way here."""
        return len(self._handles)

    def open(self, options: TextOptions, choice_index: int, sink: TextSink) -> TextHandle:
        """Begin the text of one choice. Only while `alive`."""
        self._next += 1
        handle = TextHandle(self, self._next, options, sink)
        handle.choice_index = choice_index
        self._handles[handle.number] = handle
        self.queue(handle)
        return handle

    def queue(self, handle: TextHandle) -> None:
        """Something waits for this handle; called by it."""
        if self.alive:
            handle.queued = True
            self._waiting.append(handle)
            self._something_waits.set()

    def forget(self, handle: TextHandle) -> None:
        """This handle is done; called by it."""
        self._handles.pop(handle.number, None)

    def abandon(self) -> None:
        """End the stream, without waiting for it. Idempotent."""
        self.task.cancel()
        self._break()

    async def _run(self, stub: "tokenizer_pb2_grpc.TokenizerServiceAsyncStub") -> None:
        call = stub.Detokenise()
        writer = asyncio.create_task(self._write(call), name=f"text link writer {self.name}")
        try:
            # read(), since `async for` would put a generator of its own around each message
            while isinstance(response := await call.read(), tokenizer_pb2.DetokeniseResponse):
                for output in response.outputs:
                    self._deliver(output)
        except aio.AioRpcError as error:
            _log.warning(
                "text link broke",
                upstream=self.name,
                code=str(error.code()),
                open_count=self.open_count,
            )
        finally:
            call.cancel()
            writer.cancel()
            try:
                await asyncio.wait((writer,))
            finally:
                self._break()

    async def _write(self, call: _Call) -> None:
        try:
            while True:
                await self._something_waits.wait()
                inputs = self._batch()
                if not self._waiting:
                    self._something_waits.clear()
                if inputs:  # what was closed before it was opened there needs no word
                    await call.write(tokenizer_pb2.DetokeniseRequest(inputs=inputs))
        except (aio.AioRpcError, asyncio.InvalidStateError) as error:
            _log.info("text link broke", upstream=self.name, cause=type(error).__name__)

    def _batch(self) -> list[_Input]:
        """The next message, within its bounds; handles with more ids than their share queue up again behind the rest."""
        inputs: list[_Input] = []
        unfinished: list[TextHandle] = []
        waiting, room = self._waiting, IDS_PER_MESSAGE
        while (
            waiting and room > 0 and len(inputs) < INPUTS_PER_MESSAGE - 1
        ):  # a handle makes up to two
            handle = waiting.popleft()
            room -= handle.write(inputs, min(room, IDS_PER_HANDLE))
            if handle.queued:
                unfinished.append(handle)
        waiting.extend(unfinished)
        return inputs

    def _deliver(self, output: tokenizer_pb2.DetokeniseOutput) -> None:
        handle = self._handles.get(output.handle)
        if handle is None:
            return  # closed while this was on its way
        if output.error or output.finished:
            handle.done = True
            del self._handles[output.handle]
        if output.error:
            _log.error("text failed", upstream=self.name, error=output.error)
            self._tell(handle, InternalError())
        else:
            logprobs = packed(output.logprobs) if handle.has_logprobs else ()
            calls = _calls(output, handle.choice_index) if handle.has_tools else ()
            self._tell(handle, _text_output(output, handle.choice_index, logprobs, calls))

    def _tell(self, handle: TextHandle, output: TextOutput | ServiceError) -> None:
        try:
            handle.sink(output)
        # One generation's fault must not end the stream of all.
        except Exception:  # noqa: BLE001
            _log.exception("a text was not taken", upstream=self.name)
            handle.close()
            if not isinstance(output, ServiceError):
                handle.sink(InternalError())

    def _break(self) -> None:
        """Tell every open handle that the stream is gone; what waited belonged to them. Idempotent."""
        self.alive = False
        handles, self._handles = list(self._handles.values()), {}
        self._waiting.clear()
        for handle in handles:
            handle.done = True
            error = UnavailableError(f"{self.name} ended its stream.", retry_delay_s=1.0)
            self._tell(handle, error)


def _text_output(
    output: tokenizer_pb2.DetokeniseOutput,
    choice_index: int,
    logprobs: Sequence[PositionLogprobs],
    calls: Sequence[ToolCall],
) -> TextOutput:
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
        logprobs=logprobs,
        calls=calls,
    )


def _calls(output: tokenizer_pb2.DetokeniseOutput, choice_index: int) -> Sequence[ToolCall]:
    return [
        ToolCall(choice_index, call.index, call.id, call.name, call.arguments)
        for call in output.tool_calls
    ]
