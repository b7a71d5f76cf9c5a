"""`python -m services.tokenizer`: one tokenizer process, configured by HOTLINE_TOKENIZER_* variables."""

import sys

from services.runtime.lifecycle import run
from services.tokenizer.app import TokenizerApp
from services.tokenizer.settings import TokenizerSettings


def main() -> int:
    """Serve until a signal; returns the exit code, 2 where the settings are wrong."""
    return run("tokenizer", TokenizerSettings, TokenizerApp)


if __name__ == "__main__":
    sys.exit(main())
