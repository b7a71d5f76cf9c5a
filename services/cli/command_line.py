"""Every subcommand and option. Imports of a subcommand happen when it runs, so that help is quick."""

import argparse
import json
import os
import signal
from collections.abc import Callable, Sequence
from importlib import import_module, metadata
from pathlib import Path

from services.cli.address import LAST_PORT, peer_address
from services.cli.key_options import add_key_command

SERVICES = {
    "gateway": "services.gateway.__main__",
    "tokenizer": "services.tokenizer.__main__",
    "worker": "services.worker.__main__",
    "edge": "services.cli.edge",
}
"""Subcommands that run one process, and the module whose `main` does so."""
WORKER_CHECK = "services.worker.check"
"""The same for `worker --check`."""
MOST_COUNT = 2**32 - 1
MOST_SECONDS = 86400


def build_parser() -> argparse.ArgumentParser:
    """Every subcommand and option; the options carry their subcommand's parser as `parser`."""
    parser = argparse.ArgumentParser(
        prog="hotline",
        description="Keeps a multimodal phone-agent model resident, warmed and on the line.",
    )
    version = metadata.version("hotline-serving")
    parser.add_argument("--version", action="version", version=f"hotline {version}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    up = commands.add_parser("up", help="start the whole stack on this machine; Ctrl-C stops it")
    up.add_argument(
        "--config",
        default="tiny-cpu",
        metavar="FILE",
        help="a YAML file, or the name of one in deploy/config: tiny-cpu (default), tiny-cpu-tp2, sim, ...",
    )
    up.add_argument(
        "--port", type=_port, help="listen there instead of the configured port; 0: any free one"
    )
    check = commands.add_parser(
        "check", help="check devices, memory and model files; start nothing"
    )
    check.add_argument(
        "--config", default="tiny-cpu", metavar="FILE", help="as for up; default: tiny-cpu"
    )
    for command in (up, check):
        command.add_argument(
            "--model-path", type=Path, metavar="FOLDER", help="the model, instead of the configured"
        )

    status = commands.add_parser("status", help="show the processes of the running stack")
    status.add_argument("--json", action="store_true", help="one JSON object; see docs/status.md")
    status.add_argument(
        "--folder", type=Path, metavar="DIR", help="of one stack, as `hotline up` names it"
    )
    status.add_argument(
        "--timeout", type=_seconds, default=3.0, metavar="S", help="wait for an answer; 3"
    )

    add_key_command(commands)

    chat = commands.add_parser("chat", help="ask the model over gRPC and stream the answer")
    chat.add_argument("text", metavar="TEXT")
    chat.add_argument("--image", type=Path, metavar="FILE", help="a screenshot to ask about")
    chat.add_argument(
        "--address",
        type=_told(peer_address),
        default="127.0.0.1:8000",
        metavar="ADDRESS",
        help="host:port or unix:/path; 127.0.0.1:8000",
    )
    chat.add_argument(
        "--key-file", type=Path, metavar="FILE", help="a file with your API key alone in it"
    )
    chat.add_argument("--model", default="", help="a name or alias; default: the server's")
    chat.add_argument("--no-think", action="store_true", help="answer without thinking first")
    chat.add_argument("--max-tokens", type=_count, metavar="N", help="longest answer, in tokens")
    chat.add_argument(
        "--timeout", type=_seconds, default=300.0, metavar="S", help="in seconds; 300"
    )

    for name in SERVICES:
        service = commands.add_parser(
            name, help=f"run one {name}, configured by HOTLINE_{name.upper()}_* variables"
        )
        service.add_argument(
            "--environment",
            type=Path,
            metavar="FILE",
            help="a JSON object of further variables; it then ends with its parent",
        )
    commands.choices["worker"].add_argument(
        "--check", action="store_true", help="check devices, memory and model files; start nothing"
    )
    for command in commands.choices.values():
        command.set_defaults(parser=command)  # those of `key` have their own
    return parser


def _told(check: Callable[[str], str]) -> Callable[[str], str]:
    """A check whose ValueError argparse shows; it would say `invalid check value` instead."""

    def checked(text: str) -> str:
        try:
            return check(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > LAST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: 0 to {LAST_PORT}")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_COUNT:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; must be 1 to {MOST_COUNT}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= MOST_SECONDS:  # NaN is in no range
        limit = f"must be seconds, above 0 and at most {MOST_SECONDS}"
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; {limit}")
    return seconds


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns its exit code. Raises SystemExit where the usage is wrong."""
    options, unknown = build_parser().parse_known_args(arguments)
    if unknown:  # parse_args would show the usage of `hotline`, which does not help
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if options.command in ("up", "chat", "status"):
        # Before grpc is imported: its core tells the terminal, as news, of every peer that stops.
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    if options.command == "up":
        from services.cli import up

        return up.main(options.config, options.port, options.model_path)
    if options.command == "check":
        from services.cli import check

        return check.main(options.config, options.model_path)
    if options.command == "status":
        from services.cli import status

        return status.main(options.folder, options.json, options.timeout)
    if options.command == "key":
        from services.cli import key

        return key.main(options)
    if options.command == "chat":
        from services.cli import chat

        return chat.main(options)
    if options.command == "worker" and options.check:
        code: int = import_module(WORKER_CHECK).main()
        return code
    return run_service(options.command, options.environment)


def run_service(name: str, environment_file: Path | None) -> int:
    """Run one process with its settings; a setting that it refuses is told in a line each."""
    from services.runtime.parent import die_with_parent

    if name == "gateway":
        # It reloads on SIGHUP; until it listens for it, nothing is there to reload, and the signal must not end it.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if environment_file is not None:
        die_with_parent()  # before the imports, which take seconds: a supervisor may be killed meanwhile
        os.environ.update(json.loads(environment_file.read_text(encoding="utf-8")))
    code: int = import_module(SERVICES[name]).main()
    return code
