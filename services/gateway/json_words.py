"""msgspec's words about a wrong type, in JSON's own."""

import re

_KINDS = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}


def expectation(problem: str) -> str | None:
    """ "Expected `int | null`, got `str`" -> "an integer, not a string"; None where msgspec said something else."""
    expected = re.fullmatch(r"Expected (.*), got (.*)", problem, re.DOTALL)
    if expected:
        return f"{_kinds(expected[1])}, not {_kinds(expected[2])}"
    missing = re.fullmatch(r"Object missing required field `(.*)`", problem, re.DOTALL)
    return f"an object with the field {missing[1]}" if missing else None


def _kinds(types: str) -> str:
    names = [_KINDS.get(name, name) for name in types.strip("`").split(" | ")]
    # null counts as absent wherever it is allowed: saying so would only distract.
    return " or ".join(name for name in names if name != "null" or len(names) == 1)
