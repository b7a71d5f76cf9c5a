"""64 generations at once, texts and images of different lengths: each has the ids that it has alone, float32."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from engine_worker import MODELS, EngineWorker, engine_worker
from transformers_reference import Reference, Rendered, screen

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(200),
    # transformers feeds torch tensors to numpy 2 in a way that numpy will drop.
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]
COUNT, MAX_TOKENS = 64, 48
MODEL = MODELS / "autoglm-phone-tiny"
TEXTS = [
    "你是谁？",
    "Who are you?",
    "count to {}",
    "repeat after me: {} ok",
    "{}+4=",
    "word {0} " * 40,
]
COLOURS = [(220, 40, 40), (40, 80, 220), (40, 170, 70)]
SIZES = [(270, 600), (540, 1200), (720, 800)]


@pytest.fixture(scope="module")
async def worker(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[EngineWorker, None]:
    variables = {
        "HOTLINE_WORKER_MODEL_PATH": str(MODEL),
        "HOTLINE_WORKER_DTYPE": "float32",
        "HOTLINE_WORKER_MAX_NUM_SEQS": str(COUNT),
        "HOTLINE_WORKER_ENABLE_PREFIX_CACHING": "false",  # the second run shall compute all again
    }
    async with engine_worker(tmp_path_factory.mktemp("fidelity"), variables) as running:
        await running.serving()
        yield running


def prompts(reference: Reference) -> list[Rendered]:
    """Every third with an image."""
    found = []
    for number in range(COUNT):
        text = TEXTS[number % len(TEXTS)].format(number)
        if number % 3:
            found.append(reference.render(text))
            continue
        place = (0.3 + number / 160, 0.2 + number / 100)
        picture = screen(COLOURS[number % 9 // 3], place, SIZES[number // 3 % 3])
        found.append(reference.render(f"点击按钮 {number}", picture))
    return found


async def test_64_mixed_generations_at_once_have_the_ids_that_each_has_alone(worker: EngineWorker):
    reference = Reference(MODEL)
    asked = await asyncio.to_thread(prompts, reference)
    await worker.put(asked)

    def run(number: int) -> "asyncio.Future[list[int]]":
        call = worker.greedy(f"g{number}", asked[number], reference.image_token, MAX_TOKENS)
        return asyncio.ensure_future(call)

    alone = [await run(number) for number in range(COUNT)]
    together = await asyncio.gather(*(run(number) for number in range(COUNT)))
    different = [n for n in range(COUNT) if alone[n] != together[n]]
    assert not different
    assert len({tuple(ids) for ids in alone}) > COUNT // 4, "the prompts are too much alike"
