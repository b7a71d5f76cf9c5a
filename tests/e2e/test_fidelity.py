"""Greedy ids through tokenizer and worker equal transformers' own, one by one: 5 texts and 3 images, float32."""

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
]
SCREENS = [
    ("点击红色按钮", screen("红色", (0.3, 0.3), (270, 600))),
    ("按钮是什么颜色？", screen("蓝色", (0.6, 0.8), (540, 1200))),
    ("tap the green button", screen("绿色", (0.5, 0.5), (1080, 2400))),
]
MAX_TOKENS = 64


@pytest.fixture(scope="module")
def reference():
    """transformers' processor and model."""
    import torch
    from transformers import AutoProcessor, Glm4vForConditionalGeneration

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    processor = AutoProcessor.from_pretrained(MODEL)
    model = Glm4vForConditionalGeneration.from_pretrained(MODEL, dtype=torch.float32).eval()

    def generate(text: str, image: object | None) -> tuple[list[int], list[int]]:
        content = [{"type": "image"}] if image is not None else []
        messages = [{"role": "user", "content": [*content, {"type": "text", "text": text}]}]
        prompt = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        images = {"images": [image]} if image is not None else {}
        inputs = processor(text=[prompt], return_tensors="pt", **images)
        with torch.no_grad():
            output = model.generate(**inputs, max_new_tokens=MAX_TOKENS, do_sample=False)
        ids = output[0].tolist()
        prompt_length = inputs["input_ids"].shape[1]
        return ids[:prompt_length], ids[prompt_length:]

    yield generate
    torch.set_num_threads(threads)


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


@pytest.mark.parametrize("text", TEXTS)
def test_texts(stack, reference, text):
    assert ours(stack, text, None) == reference(text, None)


@pytest.mark.parametrize(("text", "image"), SCREENS, ids=[text for text, _ in SCREENS])
def test_images(stack, reference, text, image):
    assert ours(stack, text, png(image)) == reference(text, image)
