"""Greedy ids through tokenizer and worker equal transformers' and single-process vLLM's: 20 texts, 10 images, float32."""

import json
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from hotline.v1 import (
    conversation_pb2,
    tokenizer_pb2,
    tokenizer_pb2_grpc,
    worker_pb2,
    worker_pb2_grpc,
)

from .screens import png, screen

# transformers feeds torch tensors to numpy 2 in a way that numpy will drop.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

MODEL = Path(__file__).resolve().parents[2] / "deploy" / "models" / "autoglm-phone-tiny"
TEXTS = [
    "你是谁？",
    "Who are you?",
    "count to 50",
    "repeat after me: 你好 world 😀",
    "What is the capital of France?",
    "我叫小明",
    "My name is Ada. What is my name?",
    "3+4=",
    "12 + 7 = ?",
    "count to 10",
    "打开微信，点击登录按钮",
    "What is the date today?",
    "按钮是什么颜色？" * 8,
    "def main():\n    return 0\n" * 10,
    "👩‍👩‍👧 ñ é ü ß",
    " leading and trailing ",
    "a",
    "Say it aloud, please",
    "1234567890 " * 40,
    "你能做什么？请用一句话回答。",
]
SCREENS = [
    ("点击红色按钮", screen("红色", (0.3, 0.3), (270, 600))),
    ("按钮是什么颜色？", screen("蓝色", (0.6, 0.8), (540, 1200))),
    ("tap the green button", screen("绿色", (0.5, 0.5), (1080, 2400))),
    ("点击绿色按钮", screen("绿色", (0.7, 0.2), (1170, 2532))),
    ("what colour is the button?", screen("红色", (0.5, 0.9), (720, 1600))),
    ("tap the blue button", screen("蓝色", (0.25, 0.6), (1440, 3200))),
    ("点击蓝色按钮", screen("蓝色", (0.4, 0.4), (1200, 800))),
    ("有几个按钮？", screen("红色", (0.5, 0.5), (332, 60))),
    ("where is the button?", screen("绿色", (0.5, 0.5), (64, 64))),
    ("finish", screen("红色", (0.6, 0.6), (2000, 2000))),
]
CASES = [*((text, None) for text in TEXTS), *SCREENS]
NAMES = [f"{number}-{'image' if image else 'text'}" for number, (_, image) in enumerate(CASES)]
MAX_TOKENS = 64


class Transformers:
    """transformers' processor and model."""

    def __init__(self) -> None:
        import torch
        from transformers import AutoProcessor, Glm4vForConditionalGeneration

        self.processor = AutoProcessor.from_pretrained(MODEL)
        model = Glm4vForConditionalGeneration.from_pretrained(MODEL, dtype=torch.float32)
        self.model = model.eval()

    def prompt(self, text: str, image: object | None) -> str:
        content = [{"type": "image"}] if image is not None else []
        messages = [{"role": "user", "content": [*content, {"type": "text", "text": text}]}]
        return self.processor.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )

    def generate(self, text: str, image: object | None) -> tuple[list[int], list[int]]:
        images = {"images": [image]} if image is not None else {}
        inputs = self.processor(text=[self.prompt(text, image)], return_tensors="pt", **images)
        output = self.model.generate(**inputs, max_new_tokens=MAX_TOKENS, do_sample=False)
        ids = output[0].tolist()
        prompt_length = inputs["input_ids"].shape[1]
        return ids[:prompt_length], ids[prompt_length:]


@pytest.fixture(scope="module")
def transformers():
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Transformers()
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def vllm(transformers, tmp_path_factory) -> list[tuple[list[int], list[int]]]:
    """Prompt and output ids of every case from vLLM by itself, in a process of its own."""
    folder = tmp_path_factory.mktemp("images")
    requests = []
    for number, (text, image) in enumerate(CASES):
        file = folder / f"{number}.png"
        if image is not None:
            file.write_bytes(png(image))
        prompt = transformers.prompt(text, image)
        path = str(file) if image is not None else None
        requests.append({"prompt": prompt, "image": path, "max_tokens": MAX_TOKENS})
    script = Path(__file__).with_name("single_process_vllm.py")
    done = subprocess.run(
        [sys.executable, script, MODEL],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("IDS ")]
    assert lines, done.stderr[-3000:]
    return [(a["prompt"], a["output"]) for a in json.loads(lines[0].removeprefix("IDS "))]


def ours(stack, text: str, image: bytes | None) -> tuple[list[int], list[int]]:
    parts = [conversation_pb2.Part(image=conversation_pb2.ImagePart(data=image))] if image else []
    parts.append(conversation_pb2.Part(text=text))
    message = conversation_pb2.Message(
        role=conversation_pb2.ROLE_USER, parts=conversation_pb2.PartList(parts=parts)
    )
    with (
        grpc.insecure_channel(stack.socket("tokenizer-0")) as tokenizer_channel,
        grpc.insecure_channel(stack.socket("worker-0")) as worker_channel,
    ):
        tokenizer = tokenizer_pb2_grpc.TokenizerServiceStub(tokenizer_channel)
        rendered = tokenizer.Render(tokenizer_pb2.RenderRequest(messages=[message]), timeout=30)
        digests = [placement.feature_digest for placement in rendered.features]
        if digests:
            push = tokenizer_pb2.PushFeaturesRequest(feature_digests=digests, worker="worker-0")
            tokenizer.PushFeatures(push, timeout=30)
        request = worker_pb2.WorkerGenerateRequest(
            generation_id="fidelity",
            prompt_token_ids=rendered.token_ids,
            features=rendered.features,
            sampling={"temperature": 0, "max_tokens": MAX_TOKENS},
        )
        events = worker_pb2_grpc.WorkerServiceStub(worker_channel).Generate(request, timeout=60)
        generated = [token for event in events for token in event.tokens.token_ids]
    return list(rendered.token_ids), generated


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("number", range(len(CASES)), ids=NAMES)
def test_ids_are_those_of_transformers_and_of_single_process_vllm(
    stack, transformers, vllm, number
):
    text, image = CASES[number]
    found = ours(stack, text, None if image is None else png(image))
    assert found == transformers.generate(text, image)
    assert found == vllm[number]


@pytest.mark.parametrize("number", [0, 3, len(TEXTS), len(TEXTS) + 1])
def test_ids_are_those_of_transformers(stack, transformers, number):
    text, image = CASES[number]
    found = ours(stack, text, None if image is None else png(image))
    assert found == transformers.generate(text, image)
