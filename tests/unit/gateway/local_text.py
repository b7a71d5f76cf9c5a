"""Detokenisers in this process, with the tokenizer service's own text rules, which can be broken at will."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hotline.v1 import generation_pb2

from services.gateway.changes import Changes
from services.gateway.events import Action, PositionLogprobs, ToolCall
from services.gateway.interfaces import TextOptions, TextOutput, TextSink
from services.gateway.logprob_wire import messages, packed
from services.runtime.errors import InternalError, ServiceError, UnavailableError
from services.tokenizer.output_text import OutputFormat, OutputOptions, OutputText, Piece

BROKEN = UnavailableError("the stream broke", retry_delay_s=1.0)


def told(piece: Piece, choice_index: int) -> TextOutput:
    """What the wire would make of a piece."""
    action = piece.action
    return TextOutput(
        text=piece.text,
        reasoning=piece.reasoning,
        consumed_tokens=piece.consumed_tokens,
        finished=piece.finished,
        stop_match=piece.stop_match,
        end_tag=piece.end_tag,
        action=Action(choice_index, action.name, action.arguments) if action else None,
        logprobs=packed(piece.logprobs),
        calls=[
            ToolCall(choice_index, call.index, call.id, call.name, call.arguments)
            for call in piece.calls
        ],
    )


@dataclass
class LocalText:
    """One text; what is sent waits until `flush`, as it would in a link."""

    text: OutputText
    choice_index: int
    sink: TextSink
    waiting: list[int] = field(default_factory=list)
    logprobs: list[generation_pb2.PositionLogprobs] = field(default_factory=list)
    last: bool = False
    done: bool = False

    def send(
        self,
        token_ids: Sequence[int],
        last: bool,
        logprobs: Sequence[PositionLogprobs | None] = (),
    ) -> None:
        if not self.done:
            self.waiting.extend(token_ids)
            self.logprobs.extend(messages(logprobs))
            self.last = self.last or last

    def flush(self, limit: int | None = None) -> None:
        if self.done:
            return
        ids, self.waiting = self.waiting[:limit], self.waiting[len(self.waiting[:limit]) :]
        piece = self.text.push(ids, self.logprobs[: len(ids)])
        del self.logprobs[: len(ids)]
        if self.last and not self.waiting and not piece.finished:
            piece.append(self.text.end())
        self.done = piece.finished
        if piece.is_news:
            self.sink(told(piece, self.choice_index))

    def close(self) -> None:
        self.done = True

    def fail(self, error: ServiceError) -> None:
        if not self.done:
            self.done = True
            self.sink(error)


@dataclass
class LocalDetokeniser:
    """See interfaces.Detokeniser."""

    form: OutputFormat
    name: str = "tokenizer-0"
    texts: list[LocalText] = field(default_factory=list)

    def open_text(self, options: TextOptions, choice_index: int, sink: TextSink) -> LocalText:
        wanted = OutputOptions(
            tuple(options.stop),
            options.split_reasoning,
            options.thinking_closed,
            options.ignore_eos,
            options.tool_use,
        )
        self.texts.append(LocalText(OutputText(self.form, wanted), choice_index, sink))
        return self.texts[-1]

    def flush(self, limit: int | None = None) -> None:
        """Answer what waits; of each text at most `limit` ids."""
        for text in list(self.texts):
            text.flush(limit)

    def break_off(self, error: ServiceError = BROKEN) -> None:
        """Lose everything that was not flushed."""
        texts, self.texts = self.texts, []
        for text in texts:
            text.fail(error)


@dataclass
class LocalDetokenisers:
    """See pinned_text.Detokenisers."""

    serving: list[LocalDetokeniser]
    changes: Changes = field(default_factory=Changes)

    def choose(self, avoid: object = None) -> LocalDetokeniser:
        others = [one for one in self.serving if one is not avoid]
        if not self.serving:
            raise UnavailableError("Nobody serves.")
        return (others or self.serving)[0]

    async def changed(self) -> None:
        await self.changes.wait()

    def set(self, *serving: LocalDetokeniser) -> None:
        self.serving = list(serving)
        self.changes.tell()


class Reader:
    """What a client would have been told."""

    def __init__(self) -> None:
        self.text = self.reasoning = ""
        self.logprobs: list[PositionLogprobs] = []
        self.calls: list[ToolCall] = []
        self.end: TextOutput | None = None
        self.error: ServiceError | None = None
        self.on_news: Callable[[], None] = lambda: None

    def __call__(self, output: TextOutput | ServiceError) -> None:
        assert self.end is None, "something came after the end"
        assert self.error is None, "something came after the error"
        if isinstance(output, ServiceError):
            self.error = output
        else:
            assert output.text or output.reasoning or output.calls or output.finished, "empty"
            self.text += output.text
            self.reasoning += output.reasoning
            self.logprobs += output.logprobs
            self.calls += output.calls
            self.end = output if output.finished else None
        self.on_news()

    @property
    def whole(self) -> tuple[object, ...]:
        """All of it, to compare."""
        assert self.end is not None
        end = self.end
        return (
            self.text, self.reasoning, end.stop_match, end.end_tag, end.consumed_tokens, end.action,
            [(one.sampled.logprob, one.sampled.token) for one in self.logprobs],
        )  # fmt: skip


__all__ = ["BROKEN", "InternalError", "LocalDetokeniser", "LocalDetokenisers", "Reader"]
