"""pydantic's errors for people: one line for each key at fault."""

from typing import Any

from pydantic import ValidationError


def explain(error: ValidationError, where: str) -> str:
    """Lines of `where: key: problem`.

    Args:
        where: the file or process whose settings they are.
    """
    lines = []
    for problem in error.errors(include_url=False):
        key = ".".join(map(str, problem["loc"]))
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            message = "unknown key"
        elif problem["type"] in ("model_type", "dict_type"):
            message = f"must be a mapping, not {kind(problem['input'])}"
        lines.append(f"{where}: {key}: {message}" if key else f"{where}: {message}")
    return "\n".join(lines)


def kind(value: Any) -> str:
    """What a value of a YAML file is, for people."""
    if value is None:
        return "empty"
    names = {str: "text", list: "a list", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)
