"""Tensor parallelism over two devices, which on a CPU are two cores with a process each: right, warm, and killed."""

import asyncio
import signal
import time
from collections.abc import AsyncGenerator

import pytest
from engine_worker import (
    MODELS,
    TWO_DEVICES,
    EngineWorker,
    engine_worker,
    gone,
    nothing_left,
)
from transformers_reference import Reference, screen

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(200),
    # transformers feeds torch tensors to numpy 2 in a way that numpy will drop.
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]
# Among those of tests/e2e/test_fidelity.py, which are compared with single-process vLLM too.
TEXTS = ["你是谁？", "Who are you?", "count to 50", "repeat after me: 你好 world 😀", "3+4="]
SCREENS = [
    ("点击红色按钮", ((220, 40, 40), (0.3, 0.3), (270, 600))),
    ("按钮是什么颜色？", ((40, 80, 220), (0.6, 0.8), (540, 1200))),
    ("tap the green button", ((40, 170, 70), (0.5, 0.5), (1080, 2400))),
]
FIRST_REQUEST_LIMIT_S = 3.0
"""Without a warm-up the first request takes 13 s."""


@pytest.fixture(scope="module")
async def worker(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[EngineWorker, None]:
    """One worker for all tests but the last, which kills it."""
    async with engine_worker(tmp_path_factory.mktemp("devices"), TWO_DEVICES) as running:
        await running.serving()
        yield running


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference(MODELS / "autoglm-phone-tiny-4-heads")


async def test_two_devices_are_warm_at_the_first_request(
    worker: EngineWorker, reference: Reference
):
    prompts = [reference.render(TEXTS[0]), reference.render(*_picture(SCREENS[0]))]
    await worker.put(prompts)
    for prompt in prompts:
        begin_s = time.monotonic()
        assert len(await worker.greedy("first", prompt, reference.image_token, 8)) == 8
        assert time.monotonic() - begin_s < FIRST_REQUEST_LIMIT_S
    assert len(worker.devices()) == 2


async def test_greedy_ids_over_two_devices_are_those_of_transformers(
    worker: EngineWorker, reference: Reference
):
    asked = [(text, None) for text in TEXTS] + [_picture(item) for item in SCREENS]
    prompts = [reference.render(*item) for item in asked]
    await worker.put(prompts)
    for (text, picture), prompt in zip(asked, prompts, strict=True):
        ours = await worker.greedy("fidelity", prompt, reference.image_token, 48)
        assert ours == await asyncio.to_thread(reference.greedy, text, picture, 48), text


async def test_kill_9_of_the_worker_ends_engine_and_devices_and_leaves_nothing(
    worker: EngineWorker,
):
    children = worker.children()
    await worker.stopped(signal.SIGKILL, 10)
    await gone(children, 10)
    await nothing_left(worker.found, worker.temporary)


def _picture(item: tuple[str, tuple[object, ...]]) -> tuple[str, object]:
    text, (colour, at, size) = item
    return text, screen(colour, at, size)  # type: ignore[arg-type]
