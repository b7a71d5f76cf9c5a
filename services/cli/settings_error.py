"""pydantic's errors for people: one line for each key at fault."""

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
        lines.append(f"{where}: {key}: {message}" if key else f"{where}: {message}")
    return "\n".join(lines)
