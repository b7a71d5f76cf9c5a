"""`hotline up --config tiny-cpu-tp2`: a model over two devices, from the start to a stop without remains."""

import asyncio
import base64
import io
from pathlib import Path
from typing import Any

import httpx
import pytest
from engine_worker import nothing_left, shared_memory
from transformers_reference import screen
from up_process import assert_gone, running_up


def answer(url: str, content: Any) -> str:
    """The model's answer."""
    body = {
        "model": "autoglm-phone-9b",
        "messages": [{"role": "user", "content": content}],
        "temperature": 0,
        "max_tokens": 64,
    }
    reply = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=30)
    assert reply.status_code == 200, reply.text
    text: str = reply.json()["choices"][0]["message"]["content"]
    return text


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_two_devices_answer_text_and_image_and_stop_without_remains(tmp_path: Path):
    before = shared_memory()
    buffer = io.BytesIO()
    screen((220, 40, 40), (0.5, 0.75), (540, 1200)).save(buffer, "PNG")
    image = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"

    def run() -> None:
        with running_up("--config", "tiny-cpu-tp2", "--port", "0") as up:
            up.until(lambda line: line.startswith("Model service is ready!"), 200)
            processes = up.descendants()
            assert "AutoGLM-Phone-Tiny" in answer(up.url, "你是谁？")
            parts = [
                {"type": "image_url", "image_url": {"url": image}},
                {"type": "text", "text": "点击红色按钮"},
            ]
            assert 'do(action="Tap"' in answer(up.url, parts)
            up.process.terminate()
            assert up.until_end() == 0
            assert_gone(processes, 10)

    await asyncio.to_thread(run)
    await nothing_left(before, tmp_path)
