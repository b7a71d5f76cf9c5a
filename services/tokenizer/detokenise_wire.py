"""Detokenise messages to domain types and back."""

from collections.abc import Iterator, Sequence
from typing import cast

from hotline.v1 import generation_pb2, tokenizer_pb2

from services.runtime.errors import InvalidArgumentError
from services.tokenizer.actions import Action
from services.tokenizer.handles import Act, Close, Open, Output, Tokens
from services.tokenizer.output_text import OutputOptions
from services.tokenizer.tool_calls import CallPiece
from services.tokenizer.tool_wire import tool_use

MAX_INPUTS = 4096
TOOLS_WORK = 150
"""Ids that take as long as opening a text with tools: some 0.4 ms."""
MAX_IDS = 1024 * 1024
"""Ids in one message; what rebuilds more state than that is sent in several."""


def inputs(requests: Sequence[tokenizer_pb2.DetokeniseRequest]) -> Iterator[tuple[int, Act]]:
    """All inputs of some messages, in order. Raises InvalidArgumentError, which ends the stream."""
    for request in requests:
        if len(request.inputs) > MAX_INPUTS:
            raise InvalidArgumentError(
                "inputs", f"{len(request.inputs)} items", f"at most {MAX_INPUTS} items"
            )
        ids = id_count((request,))
        if ids > MAX_IDS:
            raise InvalidArgumentError("inputs", f"{ids} token ids", f"at most {MAX_IDS} ids")
        for item in request.inputs:
            yield item.handle, _act(item)


def work_count(requests: Sequence[tokenizer_pb2.DetokeniseRequest]) -> int:
    """Inputs and token ids in some messages; texts with tools count for more."""
    inputs = sum(len(request.inputs) for request in requests)
    with_tools = sum(bool(item.open.tools) for request in requests for item in request.inputs)
    return inputs + id_count(requests) + with_tools * TOOLS_WORK


def id_count(requests: Sequence[tokenizer_pb2.DetokeniseRequest]) -> int:
    """Token ids in some messages."""
    return sum(len(item.tokens.token_ids) for request in requests for item in request.inputs)


def response(outputs: Sequence[Output]) -> tokenizer_pb2.DetokeniseResponse | None:
    """One message with all outputs; None where there are none."""
    if not outputs:
        return None
    return tokenizer_pb2.DetokeniseResponse(outputs=[_output(output) for output in outputs])


def _act(item: tokenizer_pb2.DetokeniseInput) -> Act:
    act = item.WhichOneof("act")
    if act == "tokens":
        tokens = item.tokens
        return Tokens(list(tokens.token_ids), tokens.last, list(tokens.logprobs))
    if act == "open":
        return Open(
            OutputOptions(
                stop=tuple(item.open.stop),
                split_reasoning=item.open.split_reasoning,
                thinking_closed=item.open.thinking_closed,
                ignore_eos=item.open.ignore_eos,
                tools=tool_use(item.open.tools, item.open.tool_choice),
            )
        )
    return Close() if act == "close" and item.close else None


def _output(output: Output) -> tokenizer_pb2.DetokeniseOutput:
    if output.error:
        return tokenizer_pb2.DetokeniseOutput(handle=output.handle, error=output.error)
    piece = output.piece
    message = tokenizer_pb2.DetokeniseOutput(
        handle=output.handle,
        consumed_tokens=piece.consumed_tokens,
        text=piece.text,
        reasoning=piece.reasoning,
        finished=piece.finished,
        stop_match=piece.stop_match,
        end_tag=piece.end_tag,
        action=_action(piece.action),
        # They are what came in, with bytes filled in.
        logprobs=cast("Sequence[generation_pb2.PositionLogprobs]", piece.logprobs),
    )
    if piece.calls:
        message.tool_calls.extend(map(_tool_call, piece.calls))
    return message


def _tool_call(piece: CallPiece) -> generation_pb2.ToolCallEvent:
    return generation_pb2.ToolCallEvent(
        index=piece.index, id=piece.id, name=piece.name, arguments=piece.arguments
    )


def _action(action: Action | None) -> generation_pb2.ActionEvent | None:
    if action is None:
        return None
    event = generation_pb2.ActionEvent(name=action.name)
    event.arguments.update(dict(action.arguments))
    return event
