"""Strings that end a text, found while it streams, and never shown."""

from collections.abc import Sequence


class StopMatcher:
    """Looks for any of some strings in a text that comes in pieces.

    The string that is complete first wins; of several that are complete at the same character, the one that began
    first. So the outcome does not depend on how the text was cut. Only what could still become one of the strings
    is held back: at most the longest of them less one character.

    But a tag is one thing: a string that is complete in the midst of a tag waits until it is known whether that is one.
    If it is, the tag has ended the text; else its beginning would be shown.

    Args:
        patterns: non-empty strings.
        tags: further ones.
    """

    def __init__(self, patterns: Sequence[str], tags: Sequence[str] = ()) -> None:
        self._patterns = tuple(dict.fromkeys((*patterns, *tags)))
        self._tags = tuple(tags)
        self._first = frozenset(pattern[0] for pattern in self._patterns)
        self._longest = max(map(len, self._patterns), default=0)
        self._held = ""

    def push(self, text: str, last: bool = False) -> tuple[str, str | None]:
        """What may be shown now, and the string that ended the text, if one did (then nothing follows).

        Args:
            last: nothing follows in any case.
        """
        if not self._patterns:
            return text, None
        self._held += text
        found = [
            (start + len(pattern), start, pattern)
            for pattern in self._patterns
            if (start := self._held.find(pattern)) >= 0
        ]
        if found:
            end, start, pattern = min(found)
            around = self._tag_around(start, end)
            if around is None or (around[1] is None and last):
                return self._release(start), pattern
            return self._release(around[0]), around[1]
        return self._release(self._safe_length()), None

    def flush(self) -> str:
        """What was held back; the text has ended without a match."""
        return self._release(len(self._held))

    def _tag_around(self, start: int, end: int) -> tuple[int, str | None] | None:
        """Where a tag begins in the midst of which that match lies, and the tag; no tag yet where it may still be one."""
        for tag in self._tags:
            for begin in range(max(0, end - len(tag) + 1), start):
                written = self._held[begin : begin + len(tag)]
                if tag.startswith(written):
                    return begin, tag if written == tag else None
        return None

    def _safe_length(self) -> int:
        for start in range(max(0, len(self._held) - self._longest + 1), len(self._held)):
            if self._held[start] in self._first:
                tail = self._held[start:]
                if any(pattern.startswith(tail) for pattern in self._patterns):
                    return start
        return len(self._held)

    def _release(self, length: int) -> str:
        shown, self._held = self._held[:length], self._held[length:]
        return shown
