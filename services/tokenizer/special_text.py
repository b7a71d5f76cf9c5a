"""Control tokens spelt in text stay text.

Tokenizers turn `<|user|>` into a control id wherever it stands in a prompt, also where a user typed it. So every
such spelling in a client's text gets an invisible mark after its first character before the template is rendered.
Afterwards the marks are taken out again, and where one stood inside a spelling the prompt is cut: the two pieces,
encoded one by one, cannot yield the control id. A prompt without such a spelling is encoded in one piece, so its
ids are those that everybody else's renderer gives.

Spellings put together from the end of one text and the beginning of what follows are treated likewise: a text's end
that could begin one, and a text's beginning that could end one, get marks too, which count only if it came to that.
"""

import re
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from typing import Any

from services.runtime.errors import InvalidArgumentError

MAX_CUTS = 20_000
"""Control tokens that the texts of one prompt may spell."""


class SpecialText:
    """The control tokens of one tokenizer. Thread-safe.

    Args:
        control: spelling -> id of every control token; spellings have at least two characters.
        output_tags: the spellings that assistant turns may use as control tokens.
    """

    def __init__(self, control: Mapping[str, int], output_tags: Collection[str]) -> None:
        self._control = dict(control)
        self._ids = frozenset(control.values())
        self._longest = max(map(len, control), default=0)
        self._any = _Spellings(control)
        self._foreign = _Spellings([text for text in control if text not in set(output_tags)])
        self._matches = re.compile(_alternatives(control))

    def guard(self, mark: str, allow_output_tags: bool) -> Callable[[Any], Any]:
        """A function that puts marks into a client's strings, also those inside lists and dictionaries.

        Args:
            mark: from `new_mark`, one per prompt.
            allow_output_tags: true for assistant turns.
        """
        spellings = self._foreign if allow_output_tags else self._any

        def guarded(value: Any) -> Any:
            if isinstance(value, str):
                return spellings.mark(value, mark)
            if isinstance(value, list | tuple):
                return [guarded(item) for item in value]
            if isinstance(value, Mapping):
                return {guarded(key): guarded(item) for key, item in value.items()}
            return value

        return guarded

    def encode(
        self,
        marked: str,
        mark: str,
        encode: Callable[[list[str]], list[list[int]]],
        field: str = "messages",
    ) -> list[int]:
        """Token ids of a rendered prompt with marks in it.

        Args:
            encode: the tokenizer: ids of each of several texts, without any of its own additions.
            field: what the client calls where the text came from.

        Raises:
            InvalidArgumentError: too many spellings, or one that the tokenizer sees in spite of the cuts.
        """
        pieces = self._pieces(marked, mark, field)
        ids = [token_id for piece in encode(pieces) for token_id in piece]
        wanted: Counter[int] = Counter()
        for piece in pieces:
            wanted.update(self._control[match.group()] for match in self._matches.finditer(piece))
        found = Counter(token_id for token_id in ids if token_id in self._ids)
        if found - wanted:  # a tokenizer that normalises its input can see what is not spelt there
            raise InvalidArgumentError(field, "text", "text without the model's control tokens")
        return ids

    def _pieces(self, marked: str, mark: str, field: str) -> list[str]:
        first, *others = marked.split(mark)
        if not others:
            return [first]
        text, position, cuts = "".join((first, *others)), len(first), [0]
        for part in others:
            if position > cuts[-1] and self._is_inside(text, position):
                cuts.append(position)
            position += len(part)
        if len(cuts) > MAX_CUTS:
            raise InvalidArgumentError(
                field,
                f"{len(cuts)} control tokens spelt in text",
                f"at most {MAX_CUTS} of them",
            )
        return [text[start:end] for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True)]

    def _is_inside(self, text: str, position: int) -> bool:
        start = max(0, position - self._longest)
        window, at = text[start : position + self._longest], position - start
        return any(
            window.find(spelling, max(0, at - len(spelling) + 1), at + len(spelling) - 1) >= 0
            for spelling in self._control
        )


def new_mark() -> str:
    """A string that no text contains: noncharacters around what nobody can guess."""
    return f"\ufdd0{secrets.token_hex(8)}\ufdd1"


class _Spellings:
    """Where texts spell any of some strings, or could help to spell one."""

    def __init__(self, spellings: Collection[str]) -> None:
        self._all = tuple(spellings)
        self._longest = max(map(len, spellings), default=0)
        self._starts = re.compile(f"(?={_alternatives(spellings)})")  # finds overlapping ones too
        heads = {text[:length] for text in spellings for length in range(1, len(text))}
        tails = {text[-length:] for text in spellings for length in range(1, len(text))}
        self._head_at_end = re.compile(rf"(?:{_alternatives(heads)})\Z")
        self._tail_at_start = re.compile(_alternatives(tails))

    def mark(self, text: str, mark: str) -> str:
        """`text` with a mark inside every spelling, and at each end that could be part of one."""
        if not text:
            return text
        positions = {match.start() + 1 for match in self._starts.finditer(text)}
        head = self._head_at_end.search(text, max(0, len(text) - self._longest))
        if head:
            positions.add(head.start() + 1)
        if self._tail_at_start.match(text) or any(text in spelling for spelling in self._all):
            positions.add(0)
        if not positions:
            return text
        cuts = [0, *sorted(positions), len(text)]
        return mark.join(text[start:end] for start, end in pairwise(cuts))


def _alternatives(texts: Collection[str]) -> str:
    """A pattern for any of the texts, the longest first; one that never matches where there is none."""
    return "|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True)) or r"(?!)"
