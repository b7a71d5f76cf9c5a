"""Calls that a grammar holds: JSON that is nothing but the call, or an array of calls."""

import json
from collections.abc import Sequence
from uuid import uuid4

from services.tokenizer.tool_calls import (
    CallPiece,
    CallReader,
    Choice,
    Cut,
    ReaderFactory,
    ToolUse,
)


def new_call_id() -> str:
    """An id for a call; OpenAI's look alike."""
    return f"call_{uuid4().hex[:24]}"


class NamedCallReader:
    """The whole text is the arguments of one function. See CallReader."""

    def __init__(self, function: str) -> None:
        self._function = function
        self._begun = False

    def push(self, text: str, token_ids: Sequence[int]) -> Cut:
        """See CallReader."""
        if self._begun:
            return Cut(calls=(CallPiece(0, arguments=text),))
        arguments = text.lstrip()
        if not arguments:
            return Cut()
        self._begun = True
        return Cut(calls=(CallPiece(0, new_call_id(), self._function, arguments),))

    def end(self) -> Cut:
        """See CallReader."""
        return Cut()


class RequiredCallsReader:
    """The text is a JSON array of objects: `name`, then `parameters`, as vLLM forces them. See CallReader.

    Each character is looked at once, with nothing but the depth and the key at hand, so that long arguments cost no
    more than short ones.
    """

    def __init__(self) -> None:
        self._depth = 0
        """Lists and objects around: 1 in the array, 2 in a call, 3 and more in a call's values."""
        self._in_string = self._escaped = False
        self._key: str | None = None
        """Of the value that stands here, in a call."""
        self._value: list[str] = []
        self._index = -1
        self._name = ""
        self._told = False

    def push(self, text: str, token_ids: Sequence[int]) -> Cut:
        """See CallReader."""
        calls: list[CallPiece] = []
        for character in text:
            self._next(character, calls)
        self._tell(calls)
        return Cut(calls=calls)

    def end(self) -> Cut:
        """See CallReader."""
        return Cut()

    def _next(self, character: str, calls: list[CallPiece]) -> None:
        if self._in_string:
            self._value.append(character)
            self._in_string = self._escaped or character != '"'
            self._escaped = character == "\\" and not self._escaped
        elif self._depth == 2 and character in ":,}":
            self._between(character, calls)
        elif character in "{[":
            self._depth += 1
            if self._depth == 2:
                self._index, self._name, self._told = self._index + 1, "", False
            elif self._depth > 2:
                self._value.append(character)
        elif character in "}]":
            if self._depth > 2:
                self._value.append(character)
            self._depth -= 1
        elif self._depth >= 2 and (self._value or not character.isspace()):
            self._value.append(character)
            self._in_string = character == '"'

    def _between(self, character: str, calls: list[CallPiece]) -> None:
        """A key, a value or a whole call has ended."""
        if character == ":":
            self._key = _string("".join(self._value))
            self._value.clear()
            return
        if self._key == "name":
            self._name = _string("".join(self._value))
        else:
            self._tell(calls)
        self._key = None
        self._value.clear()
        if character == "}":
            self._depth -= 1

    def _tell(self, calls: list[CallPiece]) -> None:
        """What there is of the arguments."""
        if self._key != "parameters" or not self._name or not self._value:
            return
        arguments = "".join(self._value)
        self._value = [""]  # not empty: inside a value, white space counts
        if not self._told:
            calls.append(CallPiece(self._index, new_call_id(), self._name, arguments))
        elif arguments:
            calls.append(CallPiece(self._index, arguments=arguments))
        self._told = True


def _string(spelling: str) -> str:
    """A JSON string's value; "" where it is none, which is a key or a name that nobody looks for."""
    try:
        value = json.loads(spelling)
    except ValueError:
        return ""
    return value if isinstance(value, str) else ""


def call_readers(automatic: ReaderFactory) -> ReaderFactory:
    """A reader for whatever the choice of tools is.

    Args:
        automatic: where the model decides, and writes calls in its own way.
    """

    def open_reader(use: ToolUse) -> CallReader:
        if use.choice is Choice.NAMED:
            return NamedCallReader(use.function)
        return RequiredCallsReader() if use.choice is Choice.REQUIRED else automatic(use)

    return open_reader
