"""The text of one choice of one generation, from its first id to its end."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.tokenizer.actions import MAX_CHARACTERS, Action, parse_action
from services.tokenizer.detokeniser import Detokeniser
from services.tokenizer.reasoning_split import ReasoningSplitter
from services.tokenizer.shown_tokens import PositionLogprobs, ShownTokens
from services.tokenizer.stops import StopMatcher
from services.tokenizer.tool_calls import CallCutter, CallPiece, ReaderFactory, ToolUse, joined


@dataclass(frozen=True)
class OutputFormat:
    """How one model writes its output."""

    detokeniser: Detokeniser
    vocabulary_size: int
    end_ids: frozenset[int]
    end_tags: tuple[str, ...]
    think_tags: tuple[str, str]
    answer_tag: str
    open_calls: ReaderFactory | None = None
    """None: texts of this model call no tools."""


@dataclass(frozen=True)
class OutputOptions:
    """How one text is wanted."""

    stop: Sequence[str] = ()
    split_reasoning: bool = False
    thinking_closed: bool = False
    ignore_eos: bool = False
    tools: ToolUse | None = None
    """None: the text calls no tools."""


@dataclass
class Piece:
    """What became of some ids; pieces of one text are added up with `append`."""

    consumed_tokens: int = 0
    """Ids consumed from the beginning."""
    text: str = ""
    reasoning: str = ""
    finished: bool = False
    stop_match: str = ""
    """With `finished`: the stop string of the request that ended the text."""
    end_tag: bool = False
    """With `finished`: the model's own end tag or end token ended the text."""
    action: Action | None = None
    logprobs: Sequence[PositionLogprobs] = ()
    """Of the tokens whose last character `text` shows, where they came in."""
    calls: Sequence[CallPiece] = ()
    """Pieces of tool calls, in order."""

    @property
    def is_news(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.text or self.reasoning or self.finished or self.calls)

    def append(self, later: "Piece") -> None:
        """Add what came later."""
        self.text += later.text
        self.reasoning += later.reasoning
        if later.logprobs:
            self.logprobs = [*self.logprobs, *later.logprobs]
        if later.calls:
            self.calls = joined(self.calls, later.calls)
        self.consumed_tokens, self.finished = later.consumed_tokens, later.finished
        self.stop_match, self.end_tag, self.action = (
            later.stop_match,
            later.end_tag,
            later.action,
        )


class OutputText:
    """Ids in, pieces out. Its state is a function of its options and its ids, so it can be rebuilt anywhere.

    Ids -> decoder -> end tags and stop strings -> thought and answer -> tool calls. Stop strings are looked for in all
    that the model writes, thought and tags included; calls in what would be told as text.
    """

    def __init__(self, form: OutputFormat, options: OutputOptions) -> None:
        self._form, self._options = form, options
        self._calls = _calls(form, options)
        # Tags of calls may be special tokens.
        self._decoder = form.detokeniser.open(show_special=self._calls is not None)
        end_tags = () if options.ignore_eos else form.end_tags
        self._stops = StopMatcher(options.stop, end_tags)
        self._splitter = ReasoningSplitter(
            form.think_tags, form.answer_tag, options.thinking_closed
        )
        self._answer = ""
        self._consumed = 0
        self._tokens: ShownTokens | None = None

    def push(self, token_ids: Sequence[int], logprobs: Sequence[PositionLogprobs] = ()) -> Piece:
        """The next ids. Raises ValueError where an id is out of the vocabulary.

        Args:
            logprobs: one for each id, or none; for all ids of a text or for none.
        """
        if logprobs or self._tokens is not None:
            self._expect(token_ids, logprobs)
        piece = Piece(self._consumed)
        for index, token_id in enumerate(token_ids):
            if token_id >= self._form.vocabulary_size:
                raise ValueError(
                    f"token id {token_id} is not below the vocabulary's size of "
                    f"{self._form.vocabulary_size}"
                )
            self._consumed += 1
            if self._calls is not None:
                self._calls.note(token_id)
            piece.append(self._next(token_id, logprobs[index] if logprobs else None))
            if piece.finished:
                break
        return piece

    def end(self) -> Piece:
        """No more ids will come: everything held back is shown, unless it ends with a match."""
        return self._show(self._decoder.flush(), last=True)

    def _expect(self, token_ids: Sequence[int], logprobs: Sequence[PositionLogprobs]) -> None:
        if len(token_ids) != len(logprobs):
            raise ValueError(f"{len(logprobs)} logprobs came with {len(token_ids)} ids")
        if self._tokens is None:
            if self._consumed:
                raise ValueError("logprobs came after ids without them")
            self._tokens = ShownTokens()

    def _next(self, token_id: int, entry: PositionLogprobs | None) -> Piece:
        has_spelling = token_id in self._form.end_ids
        if has_spelling:
            spelling = self._form.detokeniser.spelling(token_id)
            if not self._options.ignore_eos and spelling not in self._form.end_tags:
                piece = self.end()
                piece.end_tag = not piece.stop_match
                return piece
            text = self._decoder.push_text(spelling)  # half of an end tag may stand there
        else:
            text = self._decoder.push(token_id)
        if self._tokens is not None:
            has_text = has_spelling or self._form.detokeniser.has_text(token_id)
            inside = self._decoder.is_inside_character
            self._tokens.decoded(entry if has_text else None, len(text), inside)
        return self._show(text)

    def _show(self, text: str, last: bool = False) -> Piece:
        if not text and not last:
            return Piece(self._consumed)
        shown, match = self._stops.push(text, last)
        ended = last or match is not None
        if last and match is None:
            shown += self._stops.flush()
        reasoning, answer = self._splitter.push(shown)
        if ended:
            rest = self._splitter.flush()
            reasoning, answer = reasoning + rest[0], answer + rest[1]
        if len(self._answer) <= MAX_CHARACTERS:
            self._answer += answer
        stop = match if match in self._options.stop else None
        wanted = answer if self._options.split_reasoning else shown
        calls: Sequence[CallPiece] = ()
        if self._calls is not None and (wanted or ended):
            cut = self._calls.push(wanted, last=ended)
            wanted, calls = cut.text, cut.calls
        return Piece(
            consumed_tokens=self._consumed,
            text=wanted,
            reasoning=reasoning if self._options.split_reasoning else "",
            finished=ended,
            stop_match=stop or "",
            end_tag=match is not None and stop is None,
            action=parse_action(self._answer) if ended else None,
            logprobs=self._told(self._tokens, len(shown), len(wanted)) if self._tokens else (),
            calls=calls,
        )

    def _told(self, tokens: ShownTokens, released: int, shown: int) -> Sequence[PositionLogprobs]:
        held = self._splitter.held_length if self._options.split_reasoning else 0
        if self._calls is not None:
            held += self._calls.held_length
            shown = 0 if self._calls.has_begun else shown  # the tokens of calls are not told
        told = tokens.released(released, held, shown)
        for entry in told:
            for one in (entry.sampled, *entry.top):
                one.token = self._form.detokeniser.token_bytes(one.token_id)
        return told


def _calls(form: OutputFormat, options: OutputOptions) -> CallCutter | None:
    if options.tools is None:
        return None
    if form.open_calls is None:
        raise ValueError("this process reads no tool calls: it has no tool_parser")
    return CallCutter(form.open_calls(options.tools))
