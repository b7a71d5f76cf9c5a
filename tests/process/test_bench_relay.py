"""`benchmarks/relay.py` works: a short run of all its loads, whose figures nobody looks at."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "relay.py"


@pytest.mark.slow
async def test_every_load_of_the_relay_benchmark_relays_each_token_once_and_prints_its_figures():
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(PROGRAM), "--streams", "16", "--rate", "20", "--seconds", "3"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await asyncio.wait_for(process.communicate(), 110)
    assert process.returncode == 0, errors.decode()[-4000:]
    lines = output.decode().splitlines()
    for name in ("echo", "unmerged", "merged"):
        [line] = [line for line in lines if line.startswith(f"{name} ")]
        assert re.search(r"[0-9.]+ us CPU a token .* p99 +[0-9.]+ ms .* RSS \d+ -> \d+ MiB", line)
    for name in ("unmerged", "merged"):
        assert any(
            line.startswith(f"{name}: 960 tokens, each exactly once and in order; ")
            for line in lines
        )
