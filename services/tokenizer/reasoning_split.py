"""Thought and answer, told apart while they stream."""

from enum import Enum, auto


class _Place(Enum):
    START = auto()
    """Nothing but whitespace came: a thought, or an answer without one, may begin."""
    THOUGHT = auto()
    GAP = auto()
    """Between thought and answer: tags and whitespace are dropped."""
    ANSWER = auto()


class ReasoningSplitter:
    """Cuts `<think>thought</think> <answer>answer` into thought and answer, without the tags.

    Output without tags is all answer. Tags repeated inside the thought or before the answer's first character are
    dropped; from there on the answer stands as the model wrote it.

    Args:
        think_tags: how a thought opens and closes.
        answer_tag: how an answer opens; it also ends a thought that was never closed.
        thinking_closed: the prompt ended inside the answer.
    """

    def __init__(self, think_tags: tuple[str, str], answer_tag: str, thinking_closed: bool) -> None:
        self._opening, self._closing = think_tags
        self._answer = answer_tag
        self._tags = (*think_tags, answer_tag)
        self._place = _Place.GAP if thinking_closed else _Place.START
        self._held = ""

    @property
    def held_length(self) -> int:
        """Characters that are held back."""
        return len(self._held)

    def push(self, text: str) -> tuple[str, str]:
        """Thought and answer to append. A tag may be cut anywhere; what could become one is held back."""
        self._held += text
        thought: list[str] = []
        while self._step(thought):
            pass
        answer = ""
        if self._place is _Place.ANSWER:
            answer, self._held = self._held, ""
        return "".join(thought), answer

    def flush(self) -> tuple[str, str]:
        """What was held back: part of the thought, or of an answer that began with half a tag."""
        rest, self._held = self._held, ""
        if self._place is _Place.THOUGHT:
            return rest, ""
        return "", rest.lstrip() if self._place is _Place.GAP else rest

    def _step(self, thought: list[str]) -> bool:
        """Take one piece off the front of what is held. False where nothing more can be told yet."""
        if not self._held or self._place is _Place.ANSWER:
            return False
        return self._in_thought(thought) if self._place is _Place.THOUGHT else self._before()

    def _in_thought(self, thought: list[str]) -> bool:
        """Take thought off the front of what is held. False where more text is needed."""
        found = [(at, tag) for tag in self._tags if (at := self._held.find(tag)) >= 0]
        if not found:
            keep = self._partial_tag_length()
            thought.append(self._held[: len(self._held) - keep])
            self._held = self._held[len(self._held) - keep :]
            return False
        at, tag = min(found)
        thought.append(self._held[:at])
        self._held = self._held[at + len(tag) :]
        if tag != self._opening:
            self._place = _Place.GAP
        return True

    def _before(self) -> bool:
        """Take whitespace and a tag off the front. False where more text is needed."""
        text = self._held.lstrip()
        tag = next((tag for tag in self._tags if text.startswith(tag)), None)
        if tag is not None:
            self._held = text[len(tag) :]
            self._place = _Place.THOUGHT if tag == self._opening else _Place.GAP
            return True
        if not text and self._place is _Place.GAP:
            self._held = ""
        if any(tag.startswith(text) for tag in self._tags):
            return False
        if self._place is _Place.GAP:
            self._held = text
        self._place = _Place.ANSWER
        return True

    def _partial_tag_length(self) -> int:
        for length in range(min(len(self._held), max(map(len, self._tags)) - 1), 0, -1):
            if any(tag.startswith(self._held[-length:]) for tag in self._tags):
                return length
        return 0
