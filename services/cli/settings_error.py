"""pydantic's errors for people: one line for each key at fault."""

from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

VALUE_LENGTH = 80


def explain(error: ValidationError, where: str, known: Iterable[str] = ()) -> str:
    """Lines of `where: key: problem`.

    Args:
        where: the file or process whose settings they are.
        known: the keys of the outermost level, told with one that is unknown there.
    """
    lines = []
    for problem in error.errors(include_url=False):
        key = ".".join(map(str, problem["loc"]))
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            among = f"; known: {', '.join(known)}" if len(problem["loc"]) == 1 and known else ""
            message = f"unknown key{among}"
        elif problem["type"] in ("model_type", "dict_type"):
            message = f"must be a mapping, not {kind(problem['input'])}"
        elif problem["type"] not in ("missing", "value_error"):
            message += f" (not {shown(problem['input'])})"
        lines.append(f"{where}: {key}: {message}" if key else f"{where}: {message}")
    return "\n".join(lines)


def shown(value: Any) -> str:
    """A value as an error repeats it."""
    text = repr(value)
    return text if len(text) <= VALUE_LENGTH else text[:VALUE_LENGTH] + "…"


def kind(value: Any) -> str:
    """What a value of a YAML file is, for people."""
    if value is None:
        return "empty"
    names = {str: "text", list: "a list", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)
