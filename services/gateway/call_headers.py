"""Headers that every answer of the call that is being served carries, whoever makes it."""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TypeAlias

Headers: TypeAlias = Sequence[tuple[str, str]]

_source: ContextVar[Callable[[], Headers]] = ContextVar("headers", default=tuple)


def bind_headers(source: Callable[[], Headers]) -> None:
    """Say where they come from, in the task of the call; asked when the answer begins."""
    _source.set(source)


def answer_headers() -> Headers:
    """The headers, as they are now."""
    return _source.get()()


def add_header(name: str, value: str) -> None:
    """One more, in the task of the call."""
    before = _source.get()
    _source.set(lambda: (*before(), (name, value)))
