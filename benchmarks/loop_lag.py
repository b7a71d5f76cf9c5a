"""How long gateway, tokenizer and worker hold up their event loops while four screenshots are always in flight.

    python benchmarks/loop_lag.py [--seconds 30] [--in-flight 4]

The processes are real ones with a simulated engine; meanwhile sixteen generations of text run. What is printed comes
from each process's own metrics. Goal: p99 below 20 ms.
"""

import argparse
import asyncio
import io
import socket
import tempfile
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import numpy as np
import uvloop
from hotline.v1 import conversation_pb2, inference_pb2, inference_pb2_grpc
from PIL import Image
from relay_processes import MODEL, serving, started

from services.runtime.channel import open_channel
from services.runtime.settings import environment

SCREEN = (1080, 2400)
TEXT_STREAMS = 16
TEXT_TOKENS = 100


def screenshot() -> bytes:
    """A PNG as hard to decode as a real screen."""
    noise = np.random.default_rng(0).integers(0, 255, (240, 108, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).resize(SCREEN).save(file, "PNG")
    return file.getvalue()


def request(*parts: conversation_pb2.Part, tokens: int) -> inference_pb2.GenerateRequest:
    """One user message."""
    message = conversation_pb2.Message(
        role=conversation_pb2.ROLE_USER, parts=conversation_pb2.PartList(parts=parts)
    )
    made = inference_pb2.GenerateRequest(messages=[message])
    made.sampling.max_tokens, made.sampling.ignore_eos = tokens, True
    return made


async def repeat(stub: object, asked: inference_pb2.GenerateRequest, end_s: float) -> int:
    """Generate one after the other until then; how many."""
    count = 0
    while time.monotonic() < end_s:
        async for _ in stub.Generate(asked, timeout=60):  # type: ignore[attr-defined]
            pass
        count += 1
    return count


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def lags(port: int) -> Mapping[str, float]:
    """The lag gauges of a process, in seconds."""
    async with httpx.AsyncClient(trust_env=False) as client:
        text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
    prefix = "hotline_event_loop_lag_"
    lines = [line.split() for line in text.splitlines() if line.startswith(prefix)]
    return {name.removeprefix(prefix): float(value) for name, value in lines}


async def main(seconds: float, in_flight: int) -> None:
    """Start the processes, load them, print a line for each."""
    with tempfile.TemporaryDirectory(prefix="hotline-lag-") as folder:
        sockets = {name: f"unix:{folder}/{name}" for name in ("worker", "tokenizer", "gateway")}
        ports = {name: free_port() for name in sockets}
        model = {"model_path": str(MODEL), "model_name": "autoglm-phone-tiny"}
        fields: dict[str, dict[str, object]] = {
            "worker": {**model, "engine": "sim", "sim_profile": "instant", "sim_step_ms": 20},
            "tokenizer": {**model, "workers": {"worker": sockets["worker"]}},
            "gateway": {
                "tokenizers": {"tokenizer": sockets["tokenizer"]},
                "workers": {"worker": sockets["worker"]},
                "allow_anonymous": True,
            },
        }
        fields["worker"] |= {"max_num_seqs": 64, "max_model_len": 8192, "sim_kv_tokens": 524_288}
        async with AsyncExitStack() as processes:
            for name, own in fields.items():
                common = {"name": name, "address": sockets[name], "exit_with_parent": True}
                common |= {"metrics_address": f"127.0.0.1:{ports[name]}"}
                variables = environment(f"HOTLINE_{name}_", {**common, **own})
                process = started(
                    ["-m", f"services.{name}"], variables, Path(folder) / f"{name}.log"
                )
                await processes.enter_async_context(process)
            await serving(sockets["gateway"])
            channel = await processes.enter_async_context(open_channel(sockets["gateway"]))
            stub = inference_pb2_grpc.InferenceServiceStub(channel)
            screen = conversation_pb2.ImagePart(data=screenshot())
            tap = (conversation_pb2.Part(image=screen), conversation_pb2.Part(text="Tap it."))
            end_s = time.monotonic() + seconds
            texts = [
                repeat(stub, request(conversation_pb2.Part(text="Hi"), tokens=TEXT_TOKENS), end_s)
                for _ in range(TEXT_STREAMS)
            ]
            images = [repeat(stub, request(*tap, tokens=4), end_s) for _ in range(in_flight)]
            counts = await asyncio.gather(*texts, *images)
            done = sum(counts[TEXT_STREAMS:])
            print(
                f"{done} screenshots of {len(screen.data)} bytes, {in_flight} in flight, {done / seconds:.1f} a second"
            )
            for name, port in ports.items():
                seen = await lags(port)
                p99_ms, max_ms = seen["p99_seconds"] * 1000, seen["max_seconds"] * 1000
                print(f"{name:<10} loop lag p99 {p99_ms:6.2f} ms   max {max_ms:6.2f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--in-flight", type=int, default=4)
    arguments = parser.parse_args()
    uvloop.run(main(arguments.seconds, arguments.in_flight))
