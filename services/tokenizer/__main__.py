"""`python -m services.tokenizer`: one tokenizer process, configured by HOTLINE_TOKENIZER_* variables."""

import sys

from services.runtime.lifecycle import run
from services.runtime.settings import explain
from services.tokenizer.app import TokenizerApp
from services.tokenizer.settings import TokenizerSettings


def main() -> int:
    """Read the settings and serve until a signal. Returns the exit code: 2 where the settings are wrong."""
    try:
        settings = TokenizerSettings.read()
    except ValueError as error:
        sys.stderr.write(explain(TokenizerSettings, error))
        return 2
    return run("tokenizer", TokenizerApp(settings), settings)


if __name__ == "__main__":
    sys.exit(main())
