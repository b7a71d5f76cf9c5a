"""A start that cannot be is refused with code 2 and a line for each reason, not with a traceback."""

import asyncio
from pathlib import Path

import pytest
from engine_worker import MODELS, TWO_DEVICES, EngineWorker, engine_worker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
ONE_DEVICE = {"HOTLINE_WORKER_MODEL_PATH": str(MODELS / "autoglm-phone-tiny")}


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        pytest.param(
            {**ONE_DEVICE, "HOTLINE_WORKER_ENGINE_ARGS": '{"watermarc": 0.1}'},
            "worker: engine_args.watermarc: the installed vLLM has no such argument; did you mean watermark?",
            id="unknown argument",
        ),
        pytest.param(
            {**TWO_DEVICES, "VLLM_CPU_OMP_THREADS_BIND": "0"},
            "worker: check devices: failed: VLLM_CPU_OMP_THREADS_BIND (worker.environment) is '0', 1 group(s)",
            id="one group of cores",
        ),
    ],
)
async def test_a_start_that_cannot_be_ends_with_code_2_and_says_why(
    tmp_path: Path, variables: dict[str, str], line: str
):
    async with engine_worker(tmp_path, variables) as worker:
        assert await asyncio.wait_for(worker.process.wait(), 60) == 2
    assert _lines(worker, line)


def _lines(worker: EngineWorker, start: str) -> list[str]:
    log = worker.log.read_text("utf-8")
    assert "Traceback" not in log
    return [line for line in log.splitlines() if line.startswith(start)]
