"""What sessions in memory take and cost: bytes of each, and how long the event loop stands still while they end.

    python benchmarks/sessions.py [--sessions 100000] [--turns 2]

- `memory`: resident bytes of each live session with so many turns of a screenshot each, beside its token ids, and how long a full
  run of the garbage collector takes with all of them.
- `rates`: creations and touches a second.
- `stall`: all of them end at once, and the sweep runs beside a ticker on the same loop, once with one owner, once with 1,000.
- `churn`: a million creations, touches and ends with a clock of its own; how late the latest end was told.
"""

import argparse
import asyncio
import gc
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import uvloop

from services.gateway.sessions.expiry import Expiry
from services.gateway.sessions.memory_store import SWEEP_INTERVAL_S, MemoryStore
from services.gateway.sessions.record import Session, StoredMessage, Turn
from services.gateway.sessions.room import SessionRoom

EVENTS = 1_000_000
IDS = b"\1\0\0\0" * 500
PAGE_BYTES = os.sysconf("SC_PAGESIZE")


class Clock:
    """Unix seconds that stand still until they are moved."""

    now_s = 1_700_000_000.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


def resident_bytes() -> int:
    """Of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def session(now_s: float, owner: str, turn_count: int) -> Session:
    """With turns of a screenshot each, the last of which is shown."""
    session_id = secrets.token_bytes(16)
    turns = []
    for place in range(turn_count):
        digest = secrets.token_bytes(32)
        message = StoredMessage(b"tap the second entry of the list %d" % place + digest, (digest,))
        is_shown = place == turn_count - 1
        features = (b"feature" * 10 + digest,) if is_shown else ()
        shown_media = (digest,) if is_shown else ()
        turns.append(Turn((message,), IDS, features, shown_media, 2, IDS, "", "", False))
    opened = Session(session_id, owner, "model", now_s, now_s + 100, 100, 1000)
    return replace(opened, turns=tuple(turns), turn_count=turn_count)


async def filled(clock: Clock, count: int, owners: int, turns: int) -> MemoryStore:
    """A store with so many sessions."""
    store = MemoryStore(clock, SessionRoom(count, count), 1024)
    for number in range(count):
        await store.create(session(clock.now_s, f"owner {number % owners}", turns))
    return store


async def memory(count: int, turns: int) -> None:
    """Print bytes and rates."""
    clock = Clock()
    gc.collect()
    before, begun_s = resident_bytes(), time.perf_counter()
    store = await filled(clock, count, 1000, turns)
    took_s = time.perf_counter() - begun_s
    gc.collect()
    each = (resident_bytes() - before) / count - 2 * turns * len(IDS)
    print(
        f"memory: {each:,.0f} bytes for each of {len(store):,} sessions of {turns} turns, beside ids"
    )
    begun_s = time.perf_counter()
    gc.collect()
    print(
        f"memory: a full garbage collection takes {(time.perf_counter() - begun_s) * 1000:.1f} ms"
    )
    places = [(kept.owner, session_id) for session_id, kept in store._sessions.items()]
    begun_s = time.perf_counter()
    for owner, session_id in places:
        clock.now_s += 0.0001
        await store.touch(owner, session_id)
    touched_s = time.perf_counter() - begun_s
    print(
        f"rates: {count / took_s:,.0f} creations/s (records made included), {count / touched_s:,.0f} touches/s"
    )


async def stall(count: int, owners: int) -> None:
    """Print how long the loop stood still."""
    clock = Clock()
    store = await filled(clock, count, owners, 0)
    gc.collect()
    clock.now_s += 1000
    worst_s, begun_s = 0.0, time.perf_counter()
    await store.start()
    last_s = begun_s
    while len(store):
        await asyncio.sleep(0)
        now_s = time.perf_counter()
        worst_s, last_s = max(worst_s, now_s - last_s), now_s
    print(
        f"stall: {count:,} sessions of {owners:,} owners ended in {last_s - begun_s:.2f} s, "
        f"the loop stood still for {worst_s * 1000:.1f} ms at most"
    )
    await store.close()


def churn() -> None:
    """Print how late the latest end was."""
    random, expiry, now_s = Random(5), Expiry[int](), 1_700_000_000.0
    ends: dict[int, float] = {}
    lateness: list[float] = []
    ended: Callable[[int], None] = lambda key: lateness.append(now_s - ends.pop(key))  # noqa: E731
    created = events = 0
    next_sweep_s, begun_s = now_s, time.perf_counter()
    while events + len(lateness) < EVENTS:
        now_s += 0.0005
        events += 1
        touched = int(random.random() * created) if random.random() > 0.4 else 0
        if touched not in ends:
            created += 1
            touched = created
        ends[touched] = now_s + 10 + random.random() * 30
        expiry.set(touched, ends[touched])
        if now_s >= next_sweep_s:
            next_sweep_s = now_s + SWEEP_INTERVAL_S
            while expiry.due(now_s, 250, ended):
                pass
    took_s = time.perf_counter() - begun_s
    print(
        f"churn: {EVENTS:,} events in {took_s:.1f} s, {len(ends):,} alive at the end; "
        f"told {min(lateness):.3f} to {max(lateness):.3f} s after their end"
    )


async def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=2)
    arguments = parser.parse_args()
    await memory(arguments.sessions, arguments.turns)
    for owners in (1, 1000):
        await stall(arguments.sessions, owners)
    churn()


if __name__ == "__main__":
    uvloop.run(main())
