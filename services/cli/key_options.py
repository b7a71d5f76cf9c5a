"""The options of `hotline key`."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

KEYS_FILE = Path("keys.json")
"""Where neither --file nor --config says it: in the working folder."""

_LIMITS: tuple[tuple[str, Callable[[str], float], str], ...] = (
    ("max-concurrent", int, "generations at once, waiting ones included"),
    ("tokens-per-minute", int, "prompt, images and max_tokens; what is not sampled is given back"),
    ("burst-tokens", int, "size of that bucket; default: the tokens of one minute"),
    ("requests-per-minute", int, "generations begun"),
    ("first-priority", int, "the most urgent priority that it may ask for; -100 is first of all"),
    ("weight", float, "share of the queue beside other keys; 1"),
)


def add_key_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `key` and its own subcommands."""
    key = commands.add_parser("key", help="make, list and revoke API keys")
    actions = key.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = actions.add_parser("add", help="make a key; it is printed this once")
    add.add_argument("name", metavar="NAME", help="whose it is, or for what; for people")
    add.add_argument(
        "--owner", metavar="OWNER", help="whom its generations belong to; default: the key alone"
    )
    add.add_argument(
        "--expires",
        metavar="WHEN",
        help="2027-01-31, 2027-01-31T12:00:00+00:00, or from now: 90d, 12h; UTC; default: never",
    )
    for name, kind, meaning in _LIMITS:
        metavar = "X" if kind is float else "N"
        add.add_argument(f"--{name}", type=kind, metavar=metavar, help=meaning)
    add.add_argument(
        "--model",
        action="append",
        metavar="NAME",
        help="a model that it may use; may stand several times; default: all",
    )
    listing = actions.add_parser("list", help="show the keys, without their secrets")
    listing.add_argument("--json", action="store_true", help="one JSON object; see docs/keys.md")
    revoke = actions.add_parser("revoke", help="refuse a key from the next reload on")
    revoke.add_argument("key", metavar="ID|NAME", help="its id, or the name of one in use")
    for action in (add, listing, revoke):
        where = action.add_mutually_exclusive_group()
        where.add_argument(
            "--file", type=Path, metavar="FILE", help=f"the keys file; {KEYS_FILE} here"
        )
        where.add_argument(
            "--config", metavar="FILE", help="take gateway.keys_file of this configuration, as `up`"
        )
        action.set_defaults(parser=action)


def limits(options: argparse.Namespace) -> dict[str, Any]:
    """The limits that were given, by their names in the file."""
    names = (name.replace("-", "_") for name, _, _ in _LIMITS)
    given = {name: getattr(options, name) for name in names}
    return {name: value for name, value in given.items() if value is not None}
