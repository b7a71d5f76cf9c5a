"""vLLM by itself: its own processing of text and images, its own engine in this process. Prints ids as JSON.

    python tests/e2e/single_process_vllm.py MODEL < REQUESTS

REQUESTS is a JSON list of {"prompt": the template's text, "image": a PNG file or null, "max_tokens": n}.
"""

import json
import os
import sys
from typing import Any

os.environ.update(
    HF_HUB_OFFLINE="1",
    VLLM_NO_USAGE_STATS="1",
    DO_NOT_TRACK="1",
    OMP_NUM_THREADS="1",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_LOGGING_LEVEL="ERROR",
)


def main(model: str) -> None:
    """Answer the requests on stdin, one after the other."""
    from PIL import Image
    from vllm import LLM, SamplingParams

    engine = LLM(
        model=model,
        dtype="float32",
        max_model_len=8192,
        max_num_seqs=1,
        kv_cache_memory_bytes=64 << 20,
        block_size=32,
        enforce_eager=True,
        limit_mm_per_prompt={"image": 1, "video": 0},
    )
    answers = []
    for request in json.load(sys.stdin):
        prompt: Any = {"prompt": request["prompt"]}
        if request["image"] is not None:
            prompt["multi_modal_data"] = {"image": Image.open(request["image"]).convert("RGB")}
        parameters = SamplingParams(temperature=0.0, max_tokens=request["max_tokens"])
        [output] = engine.generate([prompt], parameters, use_tqdm=False)
        answers.append({"prompt": output.prompt_token_ids, "output": output.outputs[0].token_ids})
    shown = [{name: list(ids) for name, ids in answer.items()} for answer in answers]
    sys.stdout.write(f"IDS {json.dumps(shown)}\n")


if __name__ == "__main__":
    main(sys.argv[1])
