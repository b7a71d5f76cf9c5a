"""Phone actions, read from a whole answer: `do(action="Tap", element=[500,750])`, `finish(message="...")`."""

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

MAX_CHARACTERS = 8192
"""A longer answer is no action."""

Number: TypeAlias = int | float
Value: TypeAlias = str | Number | list[Number]

_ESCAPES = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t"})
_MAX_NUMBER = 2**53
"""Beyond this, numbers are not exact on the wire."""


@dataclass(frozen=True)
class Action:
    """One phone action."""

    name: str
    """The value of `action`, or `finish`."""
    arguments: Mapping[str, Value]


def parse_action(answer: str) -> Action | None:
    """The action that an answer is; None where it is anything else.

    Only literals are read, nothing is evaluated: strings, numbers, and lists of numbers, all by name. Line breaks
    inside strings are taken as they stand.
    """
    text = answer.strip()
    if len(text) > MAX_CHARACTERS or not text.startswith(("do(", "finish(")):
        return None
    try:
        call = ast.parse(text.translate(_ESCAPES), mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            return None
        arguments = {keyword.arg: _value(keyword.value) for keyword in call.keywords}
    except (ValueError, SyntaxError, RecursionError, MemoryError):  # all are ast.parse's own
        return None
    named = {name: value for name, value in arguments.items() if name is not None}
    if len(named) != len(call.keywords):
        return None
    if call.func.id == "finish":
        return Action("finish", named)
    name = named.pop("action", None)
    if call.func.id != "do" or not isinstance(name, str) or not name:
        return None
    return Action(name, named)


def _value(node: ast.expr) -> Value:
    value = ast.literal_eval(node)
    if isinstance(value, str):
        value.encode()  # raises ValueError for lone surrogates, which the wire cannot carry
        return value
    if isinstance(value, list | tuple):
        return [_number(item) for item in value]
    return _number(value)


def _number(value: object) -> Number:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("neither a string, a number nor a list of numbers")
    if not math.isfinite(value) or abs(value) > _MAX_NUMBER:
        raise ValueError("out of range")
    return value
