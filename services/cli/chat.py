"""`hotline chat`: one question over gRPC, its answer streamed to the terminal."""

import argparse
import asyncio
import json
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any, TextIO

from google.protobuf import json_format
from hotline.v1 import (
    conversation_pb2,
    generation_pb2,
    inference_pb2,
    sampling_pb2,
)
from hotline_client import AsyncClient, HotlineError, NetworkPolicy
from hotline_client.errors import UNREACHABLE

from services.cli.screenshot import read_screenshot

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
_POLICY = NetworkPolicy(max_attempts=3)
"""Who sits before a terminal would rather hear soon that nobody is there."""
_INTERRUPTED = 130  # as shells report SIGINT


def main(options: argparse.Namespace) -> int:
    """Ask, stream, and return 0, or 1 with the reason on standard error."""
    try:
        request, key = make_request(options), credentials(options.key_file)
    except ValueError as error:
        return _fail(f"{error}")
    try:
        return asyncio.run(_ask(options.address, request, key, options.timeout))
    except KeyboardInterrupt:
        print("\ncancelled", file=sys.stderr)
        return _INTERRUPTED


def make_request(options: argparse.Namespace) -> inference_pb2.GenerateRequest:
    """The request of a command line. Raises ValueError: the image, or a number out of range."""
    parts = []
    if options.image is not None:
        data = read_screenshot(options.image)
        parts.append(conversation_pb2.Part(image=conversation_pb2.ImagePart(data=data)))
    parts.append(conversation_pb2.Part(text=options.text))
    message = conversation_pb2.Message(
        role=conversation_pb2.ROLE_USER, parts=conversation_pb2.PartList(parts=parts)
    )
    return inference_pb2.GenerateRequest(
        model=options.model,
        messages=[message],
        sampling=sampling_pb2.SamplingParameters(temperature=0, max_tokens=options.max_tokens),
        render=conversation_pb2.RenderOptions(
            split_reasoning=True, enable_thinking=False if options.no_think else None
        ),
    )


def credentials(key_file: Path | None) -> str | None:
    """The API key of a file; without one, none. Raises ValueError: no such file, or no key in it."""
    if key_file is None:
        return None
    try:
        key = key_file.read_text(encoding="ascii").strip()
    except OSError as error:
        raise ValueError(f"{key_file}: {error.strerror}") from None
    except UnicodeDecodeError:
        key = ""
    if not key or len(key.split()) != 1 or not key.isprintable():
        raise ValueError(f"{key_file}: must hold one API key and nothing else")
    return key


async def _ask(
    address: str, request: inference_pb2.GenerateRequest, key: str | None, timeout_s: float
) -> int:
    screen = _Screen()
    try:
        client = AsyncClient(address, api_key=key, policy=_POLICY)
    except ValueError as error:  # the key would travel in the clear
        return _fail(f"{error}")
    async with client:
        try:
            async with aclosing(aiter(client.send(request, timeout_s))) as events:
                async for event in events:
                    code = screen.show(event)
                    if code is not None:
                        return code
        except HotlineError as error:
            screen.end_line()
            if error.reason == UNREACHABLE:
                return _fail(f"the service at {address} does not answer; is `hotline up` running?")
            return _fail(f"{error.message} [{error.reason}]")
    screen.end_line()
    return _fail("the stream ended without a terminal event")


class _Screen:
    """The answer on standard output, all else on standard error, each on lines of its own."""

    def __init__(self) -> None:
        self._open: TextIO | None = None

    def show(self, event: generation_pb2.GenerationEvent) -> int | None:
        """Show one event. Returns the exit code at the terminal one."""
        kind = event.WhichOneof("event")
        if kind == "text":
            self._write(sys.stdout, event.text.text, event.text.text)
        elif kind == "reasoning":
            text = event.reasoning.text
            self._write(sys.stderr, text, f"{_DIM}{text}{_PLAIN}")
        elif kind == "action":
            self.end_line()
            print(_action(event.action), file=sys.stderr)
        elif kind == "finished":
            self.end_line()
            print(_summary(event.finished), file=sys.stderr)
            return 0
        return None

    def _write(self, output: TextIO, text: str, on_terminal: str) -> None:
        if self._open is not output:
            self.end_line()
        self._open = output
        print(on_terminal if output.isatty() else text, end="", flush=True, file=output)

    def end_line(self) -> None:
        """Begin a new line, where one is open."""
        if self._open is not None:
            print(file=self._open, flush=True)
        self._open = None


def _action(action: generation_pb2.ActionEvent) -> str:
    """As the model writes it, `Tap element=[500,700]`; the wire loses the order of the arguments: by name."""
    arguments = sorted(
        json_format.MessageToDict(action.arguments).items(),
        key=lambda item: (item[0] == "end", item[0]),  # a swipe's start comes before its end
    )
    written = [f"{name}={_value(value)}" for name, value in arguments]
    return " ".join(["action:", action.name, *written])


def _value(value: Any) -> str:
    """In JSON. A Struct knows no integers, a screen nothing else."""
    if isinstance(value, list):
        return f"[{','.join(map(_value, value))}]"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, ensure_ascii=False)


def _summary(finished: generation_pb2.FinishedEvent) -> str:
    usage, timings = finished.usage, finished.timings
    reason = generation_pb2.FinishReason.Name(finished.reason).removeprefix("FINISH_REASON_")
    waited = (timings.queue, timings.render, timings.prefill)
    first_ms = sum(part.ToMilliseconds() for part in waited)
    return (
        f"{reason.lower()}: {usage.prompt_tokens} prompt tokens ({usage.cached_tokens} cached), "
        f"{usage.completion_tokens} completion tokens, first token after {first_ms} ms, "
        f"then {timings.decode.ToMilliseconds()} ms"
    )


def _fail(reason: str) -> int:
    print(f"error: {reason}", file=sys.stderr)
    return 1
