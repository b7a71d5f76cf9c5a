"""Writes the table of docs/openai.md from the code's: `python deploy/setup/parameter_page.py`. A test tells when to."""

from pathlib import Path

from services.gateway.parameter import Parameter, Route
from services.gateway.parameter_table import TABLE

PAGE = Path(__file__).resolve().parents[2] / "docs" / "openai.md"
BEGIN = "<!-- parameters: written by deploy/setup/parameter_page.py from services/gateway/parameter_table.py -->"
END = "<!-- end of parameters -->"
_NAMES = {Route.CHAT: "chat", Route.COMPLETIONS: "completions"}


def table() -> str:
    """The table in Markdown, between its marks."""
    head = (
        "| parameter | value | absent means | routes | what it does |",
        "|---|---|---|---|---|",
    )
    return "\n".join((BEGIN, *head, *map(_row, TABLE), END))


def _row(parameter: Parameter) -> str:
    nested = " ¹" if parameter.is_nestable else ""
    both = len(parameter.routes) == len(Route)
    routes = "both" if both else ", ".join(_NAMES[route] for route in parameter.routes)
    cells = (
        f"`{parameter.name}`{nested}",
        parameter.kind.words,
        parameter.default,
        routes,
        parameter.text,
    )
    return f"| {' | '.join(cells)} |"


def renewed(page: str) -> str:
    """The page with its table as it should be. Raises ValueError where its marks are missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} has no marks around its table of parameters")
    return before + table() + after


def main() -> None:
    """Renew the page."""
    PAGE.write_text(renewed(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
