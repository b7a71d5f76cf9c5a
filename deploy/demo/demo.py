"""`make demo`: start the default stack, ask it by openai-python through Envoy, stream the answers, tell the times, stop.

Exit code 0 when every answer came; otherwise 1 with the reason. Nothing outlives it.
"""

import argparse
import asyncio
import base64
import io
import re
import signal
import sys
import time
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import openai
import psutil
from PIL import Image, ImageDraw

READY_LINE = "Model service is ready! Endpoint: /v1/chat/completions"
START_LIMIT_S, ANSWER_LIMIT_S, STOP_LIMIT_S = 300.0, 60.0, 90.0
SET_UP_STAMP = Path(sys.prefix) / "hotline-setup"
HOTLINE = Path(sys.executable).with_name("hotline")
MODEL = "autoglm-phone-9b"  # an alias; the reply carries the canonical name

TEXT_QUESTION = "你是谁？"
LONG_QUESTION = "count to 50"
SCREEN_QUESTION = "点击红色按钮"
SCREEN_SIZE = (540, 1200)
BUTTON_CENTRE = (0.5, 0.75)


class DemoError(Exception):
    """Why the demonstration failed."""


@dataclass
class Stack:
    """A running `hotline up`."""

    process: asyncio.subprocess.Process
    start_s: float
    base_url: str = ""
    loaded_s: float = 0.0
    """From the start until the worker serves."""
    ready_s: float = 0.0
    """From the start until the whole chain answers."""

    async def follow(self) -> None:
        """Show what `up` prints, and note when the worker and when everything is ready."""
        assert self.process.stdout is not None
        async for raw in self.process.stdout:
            line = raw.decode().rstrip("\n")
            print("  " + line, flush=True)
            now_s = time.monotonic() - self.start_s
            if re.search(r"\] worker-0 +ready", line) and not self.loaded_s:
                self.loaded_s = now_s
            if line.startswith("  REST"):
                self.base_url = line.split()[1]
            if line == READY_LINE:
                self.ready_s = now_s
                return
        raise DemoError("the stack did not start; the lines above say why")


@dataclass(frozen=True)
class Answer:
    """One streamed answer, timed by the client."""

    first_token_s: float
    whole_s: float
    tokens: int

    @property
    def tokens_per_s(self) -> float:
        """After the first token; means little for a short answer."""
        return (self.tokens - 1) / max(self.whole_s - self.first_token_s, 1e-6)


@asynccontextmanager
async def running_stack(config: str) -> AsyncGenerator[Stack, None]:
    """`hotline up` on a free port, ready; stopped as Ctrl-C would, and killed where it does not stop."""
    command = [str(HOTLINE), "up", "--config", config, "--port", "0"]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=PIPE, stderr=STDOUT, start_new_session=True
    )
    stack = Stack(process, time.monotonic())
    try:
        try:
            await asyncio.wait_for(stack.follow(), START_LIMIT_S)
        except TimeoutError:
            raise DemoError(f"the stack was not ready within {START_LIMIT_S:g} s") from None
        yield stack
    finally:
        await _stop(process)


async def _stop(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    try:
        # Reads on, so that `up` never waits for a reader.
        await asyncio.wait_for(process.communicate(), STOP_LIMIT_S)
    except TimeoutError:
        process.kill()  # everything below it ends with it
        raise DemoError(f"the stack did not stop within {STOP_LIMIT_S:g} s") from None


def screenshot() -> str:
    """A phone screen with one red button, as a data URL."""
    width, height = SCREEN_SIZE
    image = Image.new("RGB", SCREEN_SIZE, (245, 245, 245))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, width, height * 0.035), fill=(30, 30, 30))
    x, y = BUTTON_CENTRE[0] * width, BUTTON_CENTRE[1] * height
    box = (x - 0.22 * width, y - 0.05 * height, x + 0.22 * width, y + 0.05 * height)
    draw.rounded_rectangle(box, radius=20, fill=(220, 40, 40))
    file = io.BytesIO()
    image.save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


async def ask(client: openai.AsyncOpenAI, title: str, question: str, image: str = "") -> Answer:
    """Ask, stream the answer to the terminal, and time it. Raises DemoError where nothing comes."""
    print(f"\n{title}: {question}", flush=True)
    parts: list[openai.types.chat.ChatCompletionContentPartParam] = []
    if image:
        parts.append({"type": "image_url", "image_url": {"url": image}})
    parts.append({"type": "text", "text": question})
    start_s = time.monotonic()
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": parts}],
        temperature=0.0,
        stream=True,
        stream_options={"include_usage": True},
    )
    first_s, text, tokens = 0.0, "", 0
    async for chunk in stream:
        tokens = chunk.usage.completion_tokens if chunk.usage else tokens
        for choice in chunk.choices:
            if choice.delta.content:
                first_s = first_s or time.monotonic() - start_s
                text += choice.delta.content
                print(choice.delta.content, end="", flush=True)
    print(flush=True)
    if not text or tokens < 1:
        raise DemoError(f"{title}: an empty answer")
    return Answer(first_s, time.monotonic() - start_s, tokens)


def table(stack: Stack, answers: dict[str, Answer]) -> str:
    """The times, a line each."""
    rows = [
        ("set-up", set_up_time()),
        ("load: worker serving after", f"{stack.loaded_s:.1f} s"),
        ("ready: chain answers after", f"{stack.ready_s:.1f} s"),
    ]
    for name, answer in answers.items():
        rows.append((f"{name}: first token after", f"{1000 * answer.first_token_s:.0f} ms"))
        rows.append((f"{name}: {answer.tokens} tokens after", f"{1000 * answer.whole_s:.0f} ms"))
    longest = max(answers.values(), key=lambda answer: answer.tokens)
    rows.append(("the longest answer's speed", f"{longest.tokens_per_s:.0f} tokens/s"))
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value:>12}" for name, value in rows]
    rule = "-" * max(map(len, lines))
    return "\n".join(["", rule, *lines, rule])


def set_up_time() -> str:
    """How long `make setup` took, and whether that was in this run of make."""
    if not SET_UP_STAMP.is_file():
        return "not by make"
    took = f"{float(SET_UP_STAMP.read_text().split()[1]):.0f} s"
    start_s = make_start_s()
    if start_s is not None and SET_UP_STAMP.stat().st_mtime >= start_s:
        return took
    return f"already done ({took} when it was made)"


def make_start_s() -> float | None:
    """When the make that runs this was started, in Unix time; None where none does."""
    starts = [
        parent.create_time()
        for parent in psutil.Process().parents()
        if parent.name() in ("make", "gmake")
    ]
    return min(starts, default=None)


async def demonstrate(config: str) -> None:
    """The whole demonstration. Raises DemoError."""
    print("Starting the stack:", flush=True)
    async with running_stack(config) as stack:
        client = openai.AsyncOpenAI(
            base_url=stack.base_url, api_key="EMPTY", timeout=ANSWER_LIMIT_S, max_retries=0
        )
        try:
            async with client:
                image = screenshot()
                answers = {
                    "text, cold": await ask(client, "Text, the first request", TEXT_QUESTION),
                    "text, warm": await ask(client, "The same text again", TEXT_QUESTION),
                    "screenshot": await ask(
                        client, "A screenshot with one red button", SCREEN_QUESTION, image
                    ),
                    "long text": await ask(client, "A longer answer", LONG_QUESTION),
                }
        except openai.OpenAIError as error:
            raise DemoError(f"a request failed: {error}") from error
        print(table(stack, answers), flush=True)
        print("\nStopping the stack ...", flush=True)
    print("Stopped.", flush=True)


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="tiny-cpu", help="what `hotline up --config` takes")
    try:
        asyncio.run(demonstrate(parser.parse_args().config))
    except DemoError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
