"""Starts an engine, kills its process, closes it and starts it again, all in this process; prints what came out as JSON.

Run by test_engine_again.py, with HOTLINE_WORKER_* variables.
"""

import asyncio
import json
import os
import signal
import sys
import time
from contextlib import aclosing

import psutil

from services.runtime.errors import EngineDeadError
from services.worker.engine import Job, Prompt, Sampling, Tokens
from services.worker.model import read_model
from services.worker.settings import WorkerSettings
from services.worker.vllm_engine import VllmEngine


async def greedy(engine: VllmEngine, max_tokens: int = 8) -> list[int]:
    """The ids of one generation."""
    sampling = Sampling(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    job = Job(f"g{time.monotonic_ns()}", Prompt([5, 6, 7, 8]), sampling)
    ids: list[int] = []
    async with aclosing(engine.generate(job)) as steps:
        async for step in steps:
            if isinstance(step, Tokens):
                ids.extend(step.token_ids)
    return ids


def engine_processes() -> list[psutil.Process]:
    """The engine's processes; the resource tracker outlives them."""
    children = psutil.Process().children(recursive=True)
    return [child for child in children if "resource_tracker" not in " ".join(child.cmdline())]


async def main() -> None:
    """Twice through an engine's life."""
    settings = WorkerSettings.read()
    engine = VllmEngine(settings, read_model(settings.model_path, {}))
    found: dict[str, object] = {}
    await engine.start()
    found["first"] = await greedy(engine)
    running = asyncio.ensure_future(greedy(engine, 4000))
    await asyncio.sleep(0.3)
    processes = engine_processes()
    os.kill(psutil.Process().children()[-1].pid, signal.SIGKILL)
    [failure] = await asyncio.gather(running, return_exceptions=True)
    found["failure"] = isinstance(failure, EngineDeadError)
    await asyncio.wait_for(engine.died(), 10)
    begin_s = time.monotonic()
    await engine.close()
    found["close_s"] = time.monotonic() - begin_s
    _, alive = psutil.wait_procs(processes, 10)
    found["left"] = len(alive)
    begin_s = time.monotonic()
    await engine.start()
    found["start_s"] = time.monotonic() - begin_s
    found["second"] = await greedy(engine)
    await engine.close()
    sys.stdout.write(f"FOUND {json.dumps(found)}\n")


if __name__ == "__main__":
    asyncio.run(main())
