"""What edge, gateway and tokenizer add to the worker's own latency, in one run against a running `hotline up`.

    python benchmarks/added_latency.py RUNTIME_FOLDER [--port 8000] [--rounds 30]

RUNTIME_FOLDER is the folder that `hotline up` names at its start; the worker's socket is in it. Rounds alternate between
the ways, so that a busy machine disturbs both alike.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from pathlib import Path

import httpx
from grpc import aio
from hotline.v1 import (
    conversation_pb2,
    inference_pb2,
    inference_pb2_grpc,
    tokenizer_pb2,
    tokenizer_pb2_grpc,
    worker_pb2,
    worker_pb2_grpc,
)

from services.runtime.channel import open_channel

MESSAGE = conversation_pb2.Message(role=conversation_pb2.ROLE_USER, text="Hi")
TOKENS = 64


async def timed(pieces: AsyncIterator[object], start_s: float) -> list[float]:
    """Seconds from the start to each piece."""
    return [time.perf_counter() - start_s async for _ in pieces]


async def direct(worker: aio.Channel, prompt: list[int], number: int) -> list[float]:
    """The worker alone."""
    request = worker_pb2.WorkerGenerateRequest(
        generation_id=f"bench-{number}",
        prompt_token_ids=prompt,
        sampling={"max_tokens": TOKENS, "temperature": 0, "ignore_eos": True},
    )
    call = worker_pb2_grpc.WorkerServiceStub(worker).Generate(request, timeout=60)
    start_s = time.perf_counter()
    return await timed((event async for event in call if event.HasField("tokens")), start_s)


async def native(edge: aio.Channel) -> list[float]:
    """gRPC through the edge."""
    request = inference_pb2.GenerateRequest(messages=[MESSAGE])
    request.sampling.max_tokens, request.sampling.ignore_eos = TOKENS, True
    request.sampling.temperature = 0
    call = inference_pb2_grpc.InferenceServiceStub(edge).Generate(request, timeout=60)
    start_s = time.perf_counter()
    return await timed((event async for event in call if event.HasField("text")), start_s)


async def rest(client: httpx.AsyncClient) -> list[float]:
    """OpenAI REST through the edge."""
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": TOKENS, "stream": True}
    body |= {"ignore_eos": True, "temperature": 0}
    start_s = time.perf_counter()
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        return await timed(
            (line async for line in response.aiter_lines() if '"content"' in line), start_s
        )


def report(name: str, rounds: list[list[float]]) -> None:
    """One line: medians over the rounds, and the 99th percentile of all gaps."""
    first = statistics.median(times[0] for times in rounds) * 1000
    gaps = sorted((b - a) * 1000 for times in rounds for a, b in pairwise(times))
    p99 = gaps[int(len(gaps) * 0.99)]
    print(
        f"{name:<8} first {first:7.2f} ms   gap p50 {statistics.median(gaps):6.2f} ms   p99 {p99:6.2f} ms"
    )


async def main(folder: Path, port: int, rounds: int) -> None:
    """Alternate between the three ways and print a line for each."""
    async with (
        open_channel(f"unix:{folder}/worker-0.sock") as worker,
        open_channel(f"unix:{folder}/tokenizer-0.sock") as tokenizer,
        open_channel(f"127.0.0.1:{port}") as edge,
        httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False
        ) as client,
    ):
        stub = tokenizer_pb2_grpc.TokenizerServiceStub(tokenizer)
        request = tokenizer_pb2.RenderRequest(messages=[MESSAGE])
        prompt = list((await stub.Render(request, timeout=10)).token_ids)
        numbers = iter(range(rounds + 3))
        ways: dict[str, Callable[[], Awaitable[list[float]]]] = {
            "worker": lambda: direct(worker, prompt, next(numbers)),
            "gRPC": lambda: native(edge),
            "REST": lambda: rest(client),
        }
        results: dict[str, list[list[float]]] = {name: [] for name in ways}
        for round_number in range(rounds + 3):
            for name, way in ways.items():
                times = await way()
                if round_number >= 3:  # the first rounds warm up
                    results[name].append(times)
        for name, times_of_rounds in results.items():
            report(name, times_of_rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    asyncio.run(main(arguments.folder, arguments.port, arguments.rounds))
