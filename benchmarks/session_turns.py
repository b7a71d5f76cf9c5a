"""What a session saves: ten turns with a screenshot each, in a session and by sending everything again, in one run.

    .venv/bin/hotline up            # a configuration with a metrics section: the tokenizer's rendered tokens are read there
    python benchmarks/session_turns.py --port 8000 --metrics 127.0.0.1:9101 [--turns 10] [--rounds 5]

Both history policies: the last image only, as a phone agent has it, and all images that the model takes. Ways alternate, so
that a busy machine disturbs both alike. The prompts of both are the same conversation; answers are of fixed length.
"""

import argparse
import asyncio
import io
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import httpx
from grpc import aio
from hotline.v1 import (
    conversation_pb2,
    generation_pb2,
    inference_pb2,
    inference_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
)
from PIL import Image

from services.runtime.channel import open_channel

SYSTEM = "You operate a phone. Think, then answer with one action. " * 60
"""Some 3,400 characters, as a phone agent's is."""
ANSWER_TOKENS = 24
COUNTER = "hotline_tokenizer_prompt_tokens_total"
LIMIT_S = 120.0


@dataclass
class Turn:
    """What one turn cost."""

    sent_bytes: int = 0
    rendered_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    ttft_s: float = 0.0
    answer: str = ""


@dataclass
class Stack:
    """A running `hotline up`."""

    channel: aio.Channel
    http: httpx.AsyncClient
    metrics: Sequence[str]
    random: Random = field(default_factory=lambda: Random(1))

    async def rendered(self) -> int:
        """Token ids that the tokenizers have rendered so far."""
        total = 0.0
        for address in self.metrics:
            text = (await self.http.get(f"http://{address}/metrics")).text
            total += sum(
                float(line.split()[1]) for line in text.splitlines() if line.startswith(COUNTER)
            )
        return int(total)

    async def turn(self, request: inference_pb2.GenerateRequest) -> Turn:
        """Send one request, and read its answer."""
        request.sampling.max_tokens = request.sampling.min_tokens = ANSWER_TOKENS
        request.sampling.ignore_eos, request.sampling.temperature = True, 0
        turn, before = Turn(request.ByteSize()), await self.rendered()
        begun_s = time.perf_counter()
        stub = inference_pb2_grpc.InferenceServiceStub(self.channel)
        async for event in stub.Generate(request, timeout=LIMIT_S):
            if event.HasField("text"):
                turn.ttft_s = turn.ttft_s or time.perf_counter() - begun_s
                turn.answer += event.text.text
            self.note(event, turn)
        turn.rendered_tokens = await self.rendered() - before
        return turn

    def note(self, event: generation_pb2.GenerationEvent, turn: Turn) -> None:
        """Usage; raises where the generation failed."""
        if event.HasField("failed"):
            raise SystemExit(event.failed.message)
        if event.HasField("finished"):
            usage = event.finished.usage
            turn.prompt_tokens, turn.cached_tokens = usage.prompt_tokens, usage.cached_tokens

    def screenshot(self) -> bytes:
        """A PNG that does not compress well, as screens with photographs."""
        image = Image.frombytes("RGB", (90, 200), self.random.randbytes(90 * 200 * 3))
        file = io.BytesIO()
        image.resize((540, 1200)).save(file, "PNG")
        return file.getvalue()


def user(text: str, image: bytes | None) -> conversation_pb2.Message:
    """A turn of the phone agent's."""
    parts = [conversation_pb2.Part(text=text)]
    if image is not None:
        parts.insert(0, conversation_pb2.Part(image=conversation_pb2.ImagePart(data=image)))
    return conversation_pb2.Message(
        role=conversation_pb2.ROLE_USER, parts=conversation_pb2.PartList(parts=parts)
    )


def system(salt: str) -> conversation_pb2.Message:
    """The salt makes rounds strangers to each other's cache."""
    return conversation_pb2.Message(role=conversation_pb2.ROLE_SYSTEM, text=f"{salt} {SYSTEM}")


async def in_session(stack: Stack, salt: str, screens: Sequence[bytes], kept: int) -> list[Turn]:
    """Each turn sends what is new."""
    policy = session_pb2.HistoryPolicy(images=session_pb2.IMAGE_RETENTION_LAST, image_count=kept)
    create = session_pb2.CreateSessionRequest(history=policy, messages=[system(salt)])
    sessions = session_pb2_grpc.SessionServiceStub(stack.channel)
    session = (await sessions.CreateSession(create, timeout=LIMIT_S)).session
    turns = []
    for number, screen in enumerate(screens):
        request = inference_pb2.GenerateRequest(
            session_id=session.session_id, messages=[user(f"Step {number}: go on.", screen)]
        )
        turns.append(await stack.turn(request))
    delete = session_pb2.DeleteSessionRequest(session_id=session.session_id)
    await sessions.DeleteSession(delete, timeout=LIMIT_S)
    return turns


async def resent(stack: Stack, salt: str, screens: Sequence[bytes], kept: int) -> list[Turn]:
    """Each turn sends everything; earlier turns lose their images as the policy says."""
    answers: list[str] = []
    turns = []
    for number in range(len(screens)):
        messages = [system(salt)]
        for past in range(number + 1):
            shown = screens[past] if past > number - kept else None
            messages.append(user(f"Step {past}: go on.", shown))
            if past < number:
                messages.append(
                    conversation_pb2.Message(
                        role=conversation_pb2.ROLE_ASSISTANT, text=answers[past]
                    )
                )
        turn = await stack.turn(inference_pb2.GenerateRequest(messages=messages))
        answers.append(turn.answer)
        turns.append(turn)
    return turns


def report(name: str, session: list[list[Turn]], whole: list[list[Turn]]) -> None:
    """The last turn of each round: medians and ratios."""

    def middle(rounds: list[list[Turn]], field_name: str) -> float:
        return statistics.median(getattr(turns[-1], field_name) for turns in rounds)

    print(f"{name}: turn {len(session[0])}, session | everything again | ratio")
    for field_name in ("sent_bytes", "rendered_tokens", "prompt_tokens", "cached_tokens", "ttft_s"):
        one, other = middle(session, field_name), middle(whole, field_name)
        scale, unit = (1000, " ms") if field_name == "ttft_s" else (1, "")
        ratio = other / one if one else float("inf")
        print(
            f"  {field_name:16} {one * scale:12,.1f}{unit} | {other * scale:12,.1f}{unit} | {ratio:6.1f}"
        )


async def main(port: int, metrics: Sequence[str], turn_count: int, rounds: int) -> None:
    """Play all rounds and print a block for each policy."""
    async with (
        open_channel(f"127.0.0.1:{port}") as channel,
        httpx.AsyncClient(timeout=10, trust_env=False) as http,
    ):
        stack = Stack(channel, http, metrics)
        for name, kept in (("last image", 1), ("images kept", 10)):
            session, whole = [], []
            for number in range(rounds):
                screens = [stack.screenshot() for _ in range(turn_count)]
                session.append(await in_session(stack, f"s{kept}.{number}", screens, kept))
                whole.append(await resent(stack, f"w{kept}.{number}", screens, kept))
            report(name, session, whole)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--metrics", nargs="+", required=True, metavar="HOST:PORT")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    asyncio.run(main(arguments.port, arguments.metrics, arguments.turns, arguments.rounds))
