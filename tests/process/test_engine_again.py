"""An engine that was killed can be closed and started again in the same process."""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

import pytest
from engine_worker import MODELS, ROOT, nothing_left, shared_memory


@pytest.mark.slow
@pytest.mark.timeout(200)
async def test_an_engine_starts_again_in_its_process_after_it_was_killed():
    before = shared_memory()
    temporary = Path(tempfile.mkdtemp(prefix="ew-"))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, Path(__file__).with_name("engine_again.py")),
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(temporary),
            "HOTLINE_WORKER_MODEL_PATH": str(MODELS / "autoglm-phone-tiny"),
            "HOTLINE_WORKER_DTYPE": "float32",
        },
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await asyncio.wait_for(process.communicate(), 180)
    lines = [line for line in output.decode().splitlines() if line.startswith("FOUND ")]
    assert lines, errors.decode()[-3000:]
    found = json.loads(lines[0].removeprefix("FOUND "))
    assert found["first"] == found["second"]
    assert found["failure"] is True
    assert found["left"] == 0
    assert found["close_s"] < 20
    assert process.returncode == 0
    await nothing_left(before, temporary)
