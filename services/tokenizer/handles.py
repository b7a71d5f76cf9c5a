"""All texts of one Detokenise stream."""

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from services.runtime.sampling_ranges import MAX_STOP_BYTES, MAX_STOPS
from services.tokenizer.output_text import OutputFormat, OutputOptions, OutputText, Piece
from services.tokenizer.shown_tokens import PositionLogprobs

SLICE_IDS = 2048
"""Ids worked on in one go, which takes the thread some milliseconds; then the other streams have their turn."""

QUICK_IDS = 64
"""Inputs of more ids are a backlog (a text that is rebuilt): they wait for the ids of running generations."""

BACKLOG_SHARE_IDS = 512
"""Ids of a backlog that one slice works on at least, however much else there is, and at most for one handle."""

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
    logprobs: Sequence[PositionLogprobs] = ()
    """One for each id, or none."""


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


@dataclass
class _Backlog:
    """What waits for one handle, in order."""

    acts: deque[Act] = field(default_factory=deque)
    offset: int = 0
    """Ids of the first act that are done."""


class Handles:
    """The open texts of one stream, by handle; dropped with it. Belongs to one thread at a time.

    Work is done in slices. The order of one handle's inputs is kept; between handles, few ids go before many, and
    those with many take turns, so that a gateway that rebuilds its texts does not hold up the others.

    One handle's fault is told to that handle alone. Ids that were on their way when a text ended by itself are
    ignored.

    Args:
        capacity: texts open at once; a further one fails.
    """

    def __init__(self, form: OutputFormat, capacity: int) -> None:
        self._form, self._capacity = form, capacity
        self._texts: dict[int, OutputText] = {}
        self._ended: OrderedDict[int, None] = OrderedDict()
        self._with_tools: set[int] = set()
        self._quick: deque[tuple[int, Act]] = deque()
        self._backlogs: OrderedDict[int, _Backlog] = OrderedDict()
        self.waiting_ids = 0
        """Ids taken and not yet worked on; an input without ids counts as one."""

    def __len__(self) -> int:
        return len(self._texts)

    @property
    def has_tools(self) -> bool:
        """Whether any open text looks for tool calls, which takes some 10 times as long for each id."""
        return bool(self._with_tools)

    def process(self, inputs: Iterable[tuple[int, Act]]) -> list[Output]:
        """Take `inputs`, and do one slice of what waits; at most one output per handle, in order of their first news.

        Call it again, with or without inputs, as long as `waiting_ids` is not 0.
        """
        for handle, act in inputs:
            self._take(handle, act)
        outputs: dict[int, Output] = {}
        room = SLICE_IDS
        while self._quick and room > (BACKLOG_SHARE_IDS if self._backlogs else 0):
            handle, act = self._quick.popleft()
            room -= self._act(handle, act, outputs)
        while self._backlogs and room > 0:
            room -= self._backlog(min(room, BACKLOG_SHARE_IDS), outputs)
        return list(outputs.values())

    def _take(self, handle: int, act: Act) -> None:
        self.waiting_ids += _weight(act)
        backlog = self._backlogs.get(handle)
        if isinstance(act, Close) and backlog is not None:
            self._drop(handle, backlog)
        elif backlog is not None:
            backlog.acts.append(act)
            return
        elif _weight(act) > QUICK_IDS:
            self._backlogs[handle] = _Backlog(deque((act,)))
            return
        self._quick.append((handle, act))

    def _backlog(self, limit: int, outputs: dict[int, Output]) -> int:
        """Do up to `limit` ids of the handle that has waited longest, which is the last one then; returns how many."""
        handle, backlog = next(iter(self._backlogs.items()))
        act = backlog.acts[0]
        done = _weight(act) - backlog.offset
        if isinstance(act, Tokens) and (backlog.offset or done > limit):
            done = min(done, limit)
            end = backlog.offset + done
            whole = end == len(act.token_ids)
            part = slice(backlog.offset, end)
            act = Tokens(act.token_ids[part], act.last and whole, act.logprobs[part])
            backlog.offset = 0 if whole else end
        if not backlog.offset:
            backlog.acts.popleft()
        self._backlogs.move_to_end(handle)
        if not backlog.acts:
            del self._backlogs[handle]
        return self._act(handle, act, outputs)

    def _drop(self, handle: int, backlog: _Backlog) -> None:
        del self._backlogs[handle]
        self.waiting_ids -= sum(map(_weight, backlog.acts)) - backlog.offset

    def _act(self, handle: int, act: Act, outputs: dict[int, Output]) -> int:
        """Do one input; returns its weight."""
        self.waiting_ids -= _weight(act)
        output = outputs.get(handle) or Output(handle)
        if isinstance(act, Open) and (output.piece.finished or output.error):
            output.error = output.error or "the handle is opened again in the message of its end"
            return 1
        try:
            self._do(handle, act, output.piece)
        except ValueError as error:
            self._forget(handle)
            self._remember(handle)
            output.error = str(error)
        if isinstance(act, Close):
            outputs.pop(handle, None)
        elif output.piece.is_news or output.error:
            outputs[handle] = output
        return _weight(act)

    def _do(self, handle: int, act: Act, piece: Piece) -> None:
        if isinstance(act, Open):
            self._open(handle, act.options)
        elif isinstance(act, Tokens):
            self._push(handle, act, piece)
        elif isinstance(act, Close):
            self._forget(handle)
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
        if options.tools is not None:
            self._with_tools.add(handle)

    def _push(self, handle: int, tokens: Tokens, piece: Piece) -> None:
        text = self._texts.get(handle)
        if text is None:
            if handle in self._ended:
                return
            raise ValueError("no such handle is open")
        piece.append(text.push(tokens.token_ids, tokens.logprobs))
        if tokens.last and not piece.finished:
            piece.append(text.end())
        if piece.finished:
            self._forget(handle)
            self._remember(handle)

    def _forget(self, handle: int) -> None:
        self._texts.pop(handle, None)
        self._with_tools.discard(handle)

    def _remember(self, handle: int) -> None:
        self._ended[handle] = None
        if len(self._ended) > REMEMBERED_COUNT:
            self._ended.popitem(last=False)


def _weight(act: Act) -> int:
    return len(act.token_ids) or 1 if isinstance(act, Tokens) else 1
