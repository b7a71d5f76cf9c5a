"""A start that is refused: the settings are well formed, but not for this machine or these files."""

from collections.abc import Sequence


class StartRefusedError(Exception):
    """What was asked for cannot be started here, now or after a restart; `lines` say why, for people. Exit code 2."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = tuple(lines)
