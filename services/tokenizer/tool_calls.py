"""Calls of tools, cut out of a text while it streams."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, Protocol, TypeAlias


class Choice(Enum):
    """Whether the model has to call a tool."""

    AUTOMATIC = auto()
    REQUIRED = auto()
    """The output is a JSON array of objects with `name` and `parameters`; a grammar holds it."""
    NAMED = auto()
    """The output is the arguments of one function; a grammar holds it."""


@dataclass(frozen=True)
class ToolUse:
    """The tools that one text may call."""

    tools: Sequence[Mapping[str, Any]]
    """OpenAI tool objects."""
    choice: Choice = Choice.AUTOMATIC
    function: str = ""
    """With NAMED: which one."""


@dataclass(frozen=True)
class CallPiece:
    """A piece of a call: the first one of a call has its id and name, the later ones append to its arguments."""

    index: int
    """Which call of the text, from 0."""
    id: str = ""
    name: str = ""
    arguments: str = ""
    """JSON to append."""


@dataclass(frozen=True)
class Cut:
    """What became of some text."""

    text: str = ""
    """That belongs to no call."""
    calls: Sequence[CallPiece] = ()


class CallReader(Protocol):
    """Reads the calls of one text. Its state depends on what it was given, in the pieces in which it was given."""

    def push(self, text: str, token_ids: Sequence[int]) -> Cut:
        """The next piece; never empty. Raises CallsUnreadableError, after which nothing is pushed any more.

        Args:
            token_ids: that came since the last piece.
        """

    def end(self) -> Cut:
        """The text has ended. Raises CallsUnreadableError."""


class CallsUnreadableError(Exception):
    """The reader failed. Never leaves the process: the text stays text."""


ReaderFactory: TypeAlias = Callable[[ToolUse], CallReader]
"""Raises ValueError where the tools are none that it can read."""


class CallCutter:
    """Calls out of one text, by a reader. Where the reader finds no call, or fails, the text is what the model wrote."""

    def __init__(self, reader: CallReader) -> None:
        self._reader: CallReader | None = reader
        self._fed: list[str] = []
        self._fed_length = self._shown_length = 0
        self._token_ids: list[int] = []
        self.has_begun = False
        """Whether there is a call."""

    @property
    def held_length(self) -> int:
        """Characters that were given and not shown, so far."""
        return self._fed_length - self._shown_length

    def note(self, token_id: int) -> None:
        """The next piece of text will have been made by this id too."""
        self._token_ids.append(token_id)

    def push(self, text: str, last: bool) -> Cut:
        """The next text. With `last` nothing follows, and nothing is held back any more."""
        if self._reader is None:
            return Cut(text)
        self._fed.append(text)
        self._fed_length += len(text)
        try:
            cut = self._read(self._reader, text, last)
        except CallsUnreadableError:
            self._reader, cut = None, Cut()
            last = True
        self._shown_length += len(cut.text)
        self.has_begun = self.has_begun or bool(cut.calls)
        return Cut(cut.text + self._rest(), cut.calls) if last and not self.has_begun else cut

    def _read(self, reader: CallReader, text: str, last: bool) -> Cut:
        token_ids, self._token_ids = self._token_ids, []
        cut = reader.push(text, token_ids) if text else Cut()
        if not last:
            return cut
        end = reader.end()
        return Cut(cut.text + end.text, (*cut.calls, *end.calls))

    def _rest(self) -> str:
        """What the reader kept for itself, though it found no call in it."""
        rest = "".join(self._fed)[self._shown_length :]
        self._shown_length = self._fed_length
        return rest


def joined(earlier: Sequence[CallPiece], later: Sequence[CallPiece]) -> Sequence[CallPiece]:
    """All pieces, in order; neighbours of the same call become one."""
    pieces = list(earlier)
    for piece in later:
        if pieces and pieces[-1].index == piece.index and not piece.name:
            arguments = pieces[-1].arguments + piece.arguments
            pieces[-1] = replace(pieces[-1], arguments=arguments)
        else:
            pieces.append(piece)
    return pieces
