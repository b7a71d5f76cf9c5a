"""Mends a fault of vLLM 0.32 on CPUs: a request with a seed, whose prompt is read over several steps, ended the engine.

After a step that reads only a part of a prompt, vLLM drops the token that it sampled, and turns the request's random
generator back by setting its offset. A CPU's generator has none and raises, in the engine's loop.

Imported only beside vLLM, in the process that holds the model.
"""

from typing import Any

import numpy as np
from vllm.platforms import current_platform


def mend_seeds() -> None:
    """Where the model runs on a CPU: keep the generators of such requests out of the step, so that nothing is turned back."""
    if not current_platform.is_cpu():
        return
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    if not hasattr(CPUModelRunner, "unmended_sample_tokens"):
        CPUModelRunner.unmended_sample_tokens = CPUModelRunner.sample_tokens
        CPUModelRunner.sample_tokens = _sample_tokens


def _sample_tokens(runner: Any, grammar_output: Any) -> Any:
    """In place of CPUModelRunner.sample_tokens: rows whose token is dropped sample without their generator."""
    generators: dict[int, Any] = runner.input_batch.generators
    rows = np.nonzero(runner.discard_request_mask.np[: runner.input_batch.num_reqs])[0]
    kept = {row: generators.pop(row) for row in map(int, rows) if row in generators}
    try:
        return runner.unmended_sample_tokens(grammar_output)
    finally:
        generators.update(kept)
