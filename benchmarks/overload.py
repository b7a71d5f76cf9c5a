"""Goodput, refusals and memory of a gateway that is asked three times as often as it can answer.

    python benchmarks/overload.py [--seconds 30] [--factor 3] [--places 40] [--padding-kib 0]
                                  [--ttft-objective-s 0] [--through rest native]

A real edge, gateway and tokenizer before a simulated engine. First the peak: as many clients as fill the places and
half of the queue, each asking again at once. Then requests at a fixed rate, `factor` times the peak, whatever becomes
of them. Goals: goodput at least 90 % of the peak, refusals p99 below 100 ms, the gateway's memory flat.
"""

import argparse
import asyncio
import json
import socket
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop
from hotline.v1 import conversation_pb2, inference_pb2
from overload_client import Answer, Client, Connect, closed_loop, native, open_loop, rest
from relay_processes import Measured, Sample, serving, stack, started

from services.runtime.settings import environment

MIB = 2**20
STEP_S = 0.025
TOKENS = 40
CONTEXT_TOKENS = 512
PEAK_S, WARM_S = 10.0, 3.0
"""Length of the first part, and what is left out at the begin of each."""
QUEUE_RATIO = 2
"""Those that may wait, for each place: about two seconds of work."""


@dataclass(frozen=True)
class Load:
    """What is asked."""

    places: int
    seconds: float
    factor: float
    padding_kib: int = 0
    """By which each request is larger than it needs to be."""
    ttft_objective_s: float = 0.0
    """The gateway's setting."""


@dataclass(frozen=True)
class Result:
    """What became of it."""

    name: str
    asked_per_s: float
    peak_per_s: float
    goodput_per_s: float
    counts: Mapping[str, int]
    refusal_ms: tuple[float, float]
    """p50, p99."""
    first_ms: tuple[float, float]
    """From the request to the first byte of those that were served; p50, p99."""
    gateway_cpu_ratio: float
    resident_mib: tuple[float, float]
    """After a third of the overload, and at its end."""

    @property
    def goodput_ratio(self) -> float:
        """Of the peak."""
        return self.goodput_per_s / self.peak_per_s

    def line(self) -> str:
        """For people."""
        return (
            f"{self.name:<7} peak {self.peak_per_s:6.1f}/s   asked {self.asked_per_s:6.1f}/s   "
            f"goodput {self.goodput_per_s:6.1f}/s = {self.goodput_ratio:.0%}   "
            f"refusals p50 {self.refusal_ms[0]:.1f} ms p99 {self.refusal_ms[1]:.1f} ms   "
            f"first byte p50 {self.first_ms[0]:.0f} ms p99 {self.first_ms[1]:.0f} ms   "
            f"gateway CPU {self.gateway_cpu_ratio:.0%}   "
            f"RSS {self.resident_mib[0]:.1f} -> {self.resident_mib[1]:.1f} MiB   {dict(self.counts)}"
        )


def chat_body(padding_kib: int) -> bytes:
    """A REST request for TOKENS tokens, and a field that means nothing."""
    messages = [{"role": "user", "content": "Hi"}]
    body = {"messages": messages, "max_tokens": TOKENS, "ignore_eos": True, "stream": True}
    if padding_kib:
        body["padding"] = "x" * (padding_kib * 1024)
    return json.dumps(body).encode()


def native_request() -> bytes:
    """The same for native clients."""
    message = conversation_pb2.Message(role=conversation_pb2.ROLE_USER, text="Hi")
    request = inference_pb2.GenerateRequest(messages=[message])
    request.sampling.max_tokens, request.sampling.ignore_eos = TOKENS, True
    return request.SerializeToString()


@asynccontextmanager
async def edge(folder: Path, gateway: str) -> AsyncIterator[str]:
    """The edge before a gateway; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    fields = {
        "address": address,
        "gateways": [gateway],
        "access_log": f"{folder}/access.log",
        "runtime_folder": str(folder),
        "exit_with_parent": True,
    }
    variables = environment("HOTLINE_EDGE_", fields)
    async with started(["-m", "services.cli", "edge"], variables, folder / "edge.log"):
        await serving(address)
        yield address


def per_s(answers: Sequence[Answer], begin_s: float, end_s: float) -> float:
    """Served ones that ended within a window, a second."""
    count = sum(a.kind == "served" and begin_s <= a.end_s < end_s for a in answers)
    return count / (end_s - begin_s)


def percentiles_ms(values: Sequence[float]) -> tuple[float, float]:
    """p50 and p99; 0 of none."""
    ordered = sorted(values)
    if not ordered:
        return 0.0, 0.0
    return tuple(1000 * ordered[int(q * (len(ordered) - 1))] for q in (0.5, 0.99))  # type: ignore[return-value]


async def measure(name: str, load: Load, client: Client, gateway: Measured) -> Result:
    """Peak, then overload."""
    count = load.places + load.places * QUEUE_RATIO // 2
    at_peak = await closed_loop(client, count, PEAK_S)
    begin_s = min(answer.asked_s for answer in at_peak)
    peak = per_s(at_peak, begin_s + WARM_S, begin_s + PEAK_S)

    async def sampled() -> tuple[Sample, Sample]:
        await asyncio.sleep(load.seconds / 3)
        before = gateway.sample()
        await asyncio.sleep(load.seconds * 2 / 3)
        return before, gateway.sample()

    asked_per_s = load.factor * peak
    overload = open_loop(client, asked_per_s, load.seconds)
    answers, (before, after) = await asyncio.gather(overload, sampled())
    begin_s, end_s = answers[0].asked_s, answers[-1].asked_s
    served = [answer for answer in answers if answer.kind == "served"]
    refused = [answer for answer in answers if answer.kind == "refused"]
    return Result(
        name=name,
        asked_per_s=len(answers) / (end_s - begin_s),
        peak_per_s=peak,
        goodput_per_s=per_s(answers, begin_s + WARM_S, end_s),
        counts=Counter(answer.kind for answer in answers),
        refusal_ms=percentiles_ms([answer.end_s - answer.asked_s for answer in refused]),
        first_ms=percentiles_ms([answer.first_s - answer.asked_s for answer in served]),
        gateway_cpu_ratio=(after.cpu_s - before.cpu_s) / (after.time_s - before.time_s),
        resident_mib=(before.resident_bytes / MIB, after.resident_bytes / MIB),
    )


async def run(load: Load, through: Sequence[str]) -> list[Result]:
    """One stack for each way in."""
    clients: dict[str, tuple[Connect, bytes]] = {
        "rest": (rest, chat_body(load.padding_kib)),
        "native": (native, native_request()),
    }
    results = []
    for name in through:
        connect, request = clients[name]
        with tempfile.TemporaryDirectory(prefix="hotline-overload-") as folder:
            queue = {
                "max_waiting": load.places * QUEUE_RATIO,
                "ttft_objective_s": load.ttft_objective_s,
            }
            context = (load.places, 1 / STEP_S, CONTEXT_TOKENS, True)
            async with (
                stack(Path(folder), *context, gateway=queue) as running,
                edge(Path(folder), running.address) as address,
                connect(address, request) as client,
            ):
                gateway = running.processes["gateway"]
                results.append(await measure(name, load, client, gateway))
                print(results[-1].line(), flush=True)
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--places", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--factor", type=float, default=3.0)
    parser.add_argument("--padding-kib", type=int, default=0, help="of each REST request")
    parser.add_argument("--ttft-objective-s", type=float, default=0.0)
    parser.add_argument("--through", nargs="+", default=["rest", "native"])
    arguments = parser.parse_args()
    fields = dict(vars(arguments))
    through = fields.pop("through")
    uvloop.run(run(Load(**fields), through))
