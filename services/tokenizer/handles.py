"""All texts of one Detokenise stream."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from services.runtime.sampling_ranges import MAX_STOP_BYTES, MAX_STOPS
from services.tokenizer.output_text import OutputFormat, OutputOptions, OutputText, Piece

REMEMBERED_COUNT = 8192
"""Ended handles whose late ids are still ignored silently; of more, the oldest are forgotten."""


@dataclass(frozen=True)
class Open:
    """Begin a text."""

    options: OutputOptions


@dataclass(frozen=True)
class Tokens:
    """Go on with a text."""

    token_ids: Sequence[int]
    last: bool = False


@dataclass(frozen=True)
class Close:
    """Forget a text."""


Act: TypeAlias = Open | Tokens | Close | None
"""None: the input said nothing."""


@dataclass
class Output:
    """What one handle is told in one message."""

    handle: int
    piece: Piece = field(default_factory=Piece)
    error: str = ""
    """Not empty: the handle failed and is forgotten."""


class Handles:
    """The open texts of one stream, by handle; dropped with it. Belongs to one thread at a time.

    One handle's fault is told to that handle alone. Ids that were on their way when a text ended by itself are
    ignored.

    Args:
        capacity: texts open at once; a further one fails.
    """

    def __init__(self, form: OutputFormat, capacity: int) -> None:
        self._form, self._capacity = form, capacity
        self._texts: dict[int, OutputText] = {}
        self._ended: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._texts)

    def process(self, inputs: Iterable[tuple[int, Act]]) -> list[Output]:
        """Do all of `inputs` in order; at most one output per handle, in order of their first news."""
        outputs: dict[int, Output] = {}
        for handle, act in inputs:
            output = outputs.get(handle) or Output(handle)
            if isinstance(act, Open) and (output.piece.finished or output.error):
                output.error = (
                    output.error or "the handle is opened again in the message of its end"
                )
                continue
            try:
                self._do(handle, act, output.piece)
            except ValueError as error:
                self._texts.pop(handle, None)
                self._remember(handle)
                output.error = str(error)
            if isinstance(act, Close):
                outputs.pop(handle, None)
            elif output.piece.is_news or output.error:
                outputs[handle] = output
        return list(outputs.values())

    def _do(self, handle: int, act: Act, piece: Piece) -> None:
        if isinstance(act, Open):
            self._open(handle, act.options)
        elif isinstance(act, Tokens):
            self._push(handle, act, piece)
        elif isinstance(act, Close):
            self._texts.pop(handle, None)
            self._ended.pop(handle, None)
        else:
            raise ValueError("the input has no act")

    def _open(self, handle: int, options: OutputOptions) -> None:
        if handle in self._texts:
            raise ValueError("the handle is open already")
        if len(self._texts) >= self._capacity:
            raise ValueError(f"{self._capacity} handles are open, which is the limit")
        if len(options.stop) > MAX_STOPS:
            raise ValueError(f"{len(options.stop)} stop strings are more than {MAX_STOPS}")
        if not all(1 <= len(stop.encode()) <= MAX_STOP_BYTES for stop in options.stop):
            raise ValueError(f"a stop string must have 1 to {MAX_STOP_BYTES} bytes")
        self._ended.pop(handle, None)
        self._texts[handle] = OutputText(self._form, options)

    def _push(self, handle: int, tokens: Tokens, piece: Piece) -> None:
        text = self._texts.get(handle)
        if text is None:
            if handle in self._ended:
                return
            raise ValueError("no such handle is open")
        piece.append(text.push(tokens.token_ids))
        if tokens.last and not piece.finished:
            piece.append(text.end())
        if piece.finished:
            del self._texts[handle]
            self._remember(handle)

    def _remember(self, handle: int) -> None:
        self._ended[handle] = None
        if len(self._ended) > REMEMBERED_COUNT:
            self._ended.popitem(last=False)
