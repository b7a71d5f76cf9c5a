"""What relaying a token costs the gateway, and whether every token arrives: real processes, a simulated engine, no edge.

    python benchmarks/relay.py [--streams 256] [--rate 50] [--seconds 60]

Three loads, one after another, with as many streams and messages each:

- `echo`: a bare grpc.aio process that passes on streams it does not look into.
- `unmerged`: each generation at its own pace, so that tokens come to the gateway one by one.
- `merged`: the engine steps all generations together, as a device does.

CPU is user and system time of the one process, over the middle of the run, divided by the tokens that came then.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import uvloop
from relay_client import (
    GENERATE,
    Checker,
    Received,
    gaps_ms,
    generate_request,
    percentile,
    receive_all,
)
from relay_echo import METHOD, echo_request
from relay_processes import Measured, Sample, stack, started

from services.runtime.channel import open_channel

PROMPT_ROOM_TOKENS = 64
SETTLE_SHARE = 0.2
"""Of the run, before and after the middle that counts; streams begin within the first half of it."""
MIB = 1024 * 1024


@dataclass(frozen=True)
class Load:
    """What is asked for."""

    streams: int
    rate: float
    """Tokens a second of each stream."""
    seconds: float

    @property
    def tokens(self) -> int:
        """Of each stream."""
        return max(2, round(self.rate * self.seconds))

    @property
    def settle_s(self) -> float:
        """Before, and after, what is measured."""
        return self.seconds * SETTLE_SHARE


@dataclass(frozen=True)
class Result:
    """What one load showed."""

    name: str
    messages: int
    """Within the middle of the run."""
    cpu_us: float
    """Of the relaying process, for each token in the middle of the run."""
    busy_ratio: float
    """Share of one core."""
    gap_p50_ms: float
    gap_p99_ms: float
    late_ms: float
    """How much later than the pace the slowest stream ended; much of it: the machine, not the relay, was measured."""
    resident_mib: tuple[float, float]
    """At the beginning and the end of the middle."""

    def line(self) -> str:
        """For people."""
        begin, end = self.resident_mib
        return (
            f"{self.name:<9} {self.cpu_us:6.1f} us CPU a token   {self.busy_ratio:4.0%} of a core   "
            f"gap p50 {self.gap_p50_ms:6.2f} ms   p99 {self.gap_p99_ms:7.2f} ms   "
            f"late {self.late_ms:.0f} ms   RSS {begin:.0f} -> {end:.0f} MiB   {self.messages} messages"
        )


async def run(
    load: Load, address: str, method: str, requests: Sequence[tuple[str, bytes]], relay: Measured
) -> tuple[list[Received], Sample, Sample]:
    """All streams to their ends; the relay's use at the beginning and the end of the middle of the run."""
    async with open_channel(address) as channel:
        await channel.channel_ready()
        streams = asyncio.ensure_future(
            receive_all(channel, method, requests, spread_s=load.settle_s / 2)
        )
        await asyncio.sleep(load.settle_s)
        before = relay.sample()
        await asyncio.sleep(load.seconds - 2 * load.settle_s)
        after = relay.sample()
        return await streams, before, after


def result(name: str, load: Load, streams: list[Received], before: Sample, after: Sample) -> Result:
    """The figures of one load."""
    begin_s, end_s = before.time_s, after.time_s
    inside = sum(begin_s <= time_s <= end_s for stream in streams for time_s in stream.times_s)
    cpu_s, wall_s = after.cpu_s - before.cpu_s, end_s - begin_s
    gaps = gaps_ms(streams, begin_s, end_s)
    tokens = sum(stream.tokens_between(begin_s, end_s, load.tokens) for stream in streams)
    return Result(
        name=name,
        messages=inside,
        cpu_us=cpu_s / tokens * 1e6,
        busy_ratio=cpu_s / wall_s,
        gap_p50_ms=percentile(gaps, 0.5),
        gap_p99_ms=percentile(gaps, 0.99),
        late_ms=max(stream.elapsed_s - (load.tokens - 1) / load.rate for stream in streams) * 1000,
        resident_mib=(before.resident_bytes / MIB, after.resident_bytes / MIB),
    )


async def echo(load: Load, folder: Path) -> Result:
    """The bare relay."""
    source, relay = (f"unix:{folder}/{name}" for name in ("source", "relay"))
    program = str(Path(__file__).parent / "relay_echo.py")
    async with AsyncExitStack() as processes:
        commands = {"source": ["source", source], "relay": ["relay", relay, source]}
        measured = {
            name: await processes.enter_async_context(
                started([program, *arguments], {}, folder / f"{name}.log")
            )
            for name, arguments in commands.items()
        }
        request = echo_request(load.tokens, 1 / load.rate)
        requests = [(f"echo-{index}", request) for index in range(load.streams)]
        streams, before, after = await run(load, relay, METHOD, requests, measured["relay"])
    for stream in streams:
        assert len(stream.messages) == load.tokens
        stream.shares = [1 / load.tokens] * load.tokens
    return result("echo", load, streams, before, after)


async def gateway(load: Load, folder: Path, together: bool) -> Result:
    """The gateway; every stream is checked token by token."""
    name = "merged" if together else "unmerged"
    context_tokens = load.tokens + PROMPT_ROOM_TOKENS
    async with stack(folder, load.streams, load.rate, context_tokens, together) as running:
        requests = [
            (f"{name}-{index}", generate_request(load.tokens)) for index in range(load.streams)
        ]
        relay = running.processes["gateway"]
        streams, before, after = await run(load, running.address, GENERATE, requests, relay)
    checker = Checker(load.tokens)
    for stream in streams:
        checker.check(stream)
    return result(name, load, streams, before, after)


async def main(load: Load, loads: Sequence[str]) -> None:
    """Run the loads and print a line for each, then the ratios."""
    results: dict[str, Result] = {}
    for name in loads:
        with tempfile.TemporaryDirectory(prefix="hotline-relay-") as folder:
            if name == "echo":
                results[name] = await echo(load, Path(folder))
            else:
                results[name] = await gateway(load, Path(folder), together=name == "merged")
        print(results[name].line(), flush=True)
    for name in results.keys() & {"unmerged", "merged"}:
        count = load.streams * load.tokens
        print(f"{name}: {count} tokens, each exactly once and in order", end="")
        if "echo" in results:
            print(f"; {results[name].cpu_us / results['echo'].cpu_us:.2f} x the bare relay", end="")
        print()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--loads", nargs="+", default=["echo", "unmerged", "merged"])
    arguments = parser.parse_args()
    wanted = Load(arguments.streams, arguments.rate, arguments.seconds)
    uvloop.run(main(wanted, arguments.loads))
