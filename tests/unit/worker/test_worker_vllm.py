"""Real vLLM behind a real worker process, against transformers in float32."""

import asyncio
import json
from typing import Any

import pytest
from hotline.v1 import sampling_pb2
from worker_calls import MODEL, MODEL_PATH, Client, Image, failure, image, request

from services.runtime.error_table import Reason
from services.worker.engine import Grid

pytestmark = [pytest.mark.timeout(240), pytest.mark.filterwarnings("default")]
TEXTS = [
    "你是谁？",
    "打开微信，点击登录按钮",
    "What is the date today?",
    "按钮是什么颜色？" * 8,
    "def main():\n    return 0\n" * 10,
]
SCREENS = [
    pytest.param((270, 600), (220, 40, 40), (0.3, 0.3), id="small, red"),
    pytest.param((540, 1200), (40, 80, 220), (0.7, 0.8), id="middle, blue"),
    pytest.param((1080, 2400), (40, 170, 70), (0.5, 0.5), id="phone, green"),
]
GREEDY = {"temperature": 0.0, "max_tokens": 24}
LONG = {"max_tokens": 8000, "ignore_eos": True}


class Reference:
    """transformers' own model and processor."""

    def __init__(self) -> None:
        import torch
        from transformers import AutoProcessor, Glm4vForConditionalGeneration

        torch.set_num_threads(1)
        self.processor: Any = AutoProcessor.from_pretrained(MODEL_PATH)
        model: Any = Glm4vForConditionalGeneration.from_pretrained(MODEL_PATH, dtype=torch.float32)
        self.model = model.eval()

    def inputs(self, text: str, picture: Any = None, **options: Any) -> Any:
        content: list[dict[str, str]] = [{"type": "text", "text": text}]
        if picture is not None:
            content.insert(0, {"type": "image"})
        prompt = self.processor.apply_chat_template(
            [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
        )
        images = {} if picture is None else {"images": [picture]}
        return self.processor(text=[prompt], return_tensors="pt", **images, **options)

    def greedy(self, inputs: Any) -> list[int]:
        count = inputs["input_ids"].shape[1]
        output = self.model.generate(
            **inputs, max_new_tokens=GREEDY["max_tokens"], do_sample=False, repetition_penalty=1.0
        )
        ids: list[int] = output[0, count:].tolist()
        return ids

    def feature(self, text: str, picture: Any) -> tuple[list[int], Image]:
        """Prompt ids and the image as the tokenizer sends it: bytes, one temporal frame."""
        import torch

        plain = {"do_rescale": False, "do_normalize": False}
        inputs = self.inputs(text, picture, images_kwargs=plain)
        pixels = inputs["pixel_values"]
        frames = pixels.to(torch.uint8).view(pixels.shape[0], 3, 2, -1)
        grid = Grid(*inputs["image_grid_thw"][0].tolist())
        data = frames[:, :, 0].contiguous().numpy().tobytes()
        return inputs["input_ids"][0].tolist(), image(grid=grid, data=data)


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference()


@pytest.fixture(scope="module")
def client(vllm_worker: Client) -> Client:
    return vllm_worker


def screen(size: tuple[int, int], color: tuple[int, int, int], at: tuple[float, float]) -> Any:
    from PIL import Image as Pillow
    from PIL import ImageDraw

    picture = Pillow.new("RGB", size, (245, 245, 245))
    x, y, half = at[0] * size[0], at[1] * size[1], size[0] / 4
    ImageDraw.Draw(picture).rectangle((x - half, y - half / 3, x + half, y + half / 3), fill=color)
    return picture


def offset(ids: list[int]) -> int:
    assert MODEL.image_token_id is not None
    return ids.index(MODEL.image_token_id)


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
async def test_greedy_ids_of_a_text_are_those_of_transformers(
    client: Client, reference: Reference, text: str
):
    inputs = reference.inputs(text)
    answer = await client.generate(ids=inputs["input_ids"][0].tolist(), sampling=GREEDY)
    assert answer.ids() == await asyncio.to_thread(reference.greedy, inputs)


@pytest.mark.parametrize(("size", "color", "at"), SCREENS)
async def test_greedy_ids_of_an_image_are_those_of_transformers(
    client: Client, reference: Reference, size: Any, color: Any, at: Any
):
    text, picture = "按钮在哪里？", screen(size, color, at)
    ids, feature = reference.feature(text, picture)
    await client.put(feature)
    answer = await client.generate(ids=ids, features=[feature.placed(offset(ids))], sampling=GREEDY)
    expected = await asyncio.to_thread(reference.greedy, reference.inputs(text, picture))
    assert answer.ids() == expected


@pytest.mark.parametrize("share", [0.05, 0.4, 0.99])
async def test_what_another_worker_began_ends_as_it_would_have_there(
    client: Client, reference: Reference, share: float
):
    text, picture = "按钮在哪里？", screen((270, 600), (220, 40, 40), (0.3, 0.3))
    ids, feature = reference.feature(text, picture)
    await client.put(feature)
    fields = {"ids": ids, "features": [feature.placed(offset(ids))], "sampling": GREEDY}
    whole = (await client.generate(**fields)).ids()
    at = max(1, int(len(whole) * share))
    assert at < len(whole)
    answer = await client.generate(output_token_ids=whole[:at], **fields)
    assert [token for piece in answer.tokens for token in piece.token_ids] == whole[at:]
    assert answer.tokens[0].position == at
    assert answer.finished[0].completion_tokens == len(whole)
    assert answer.started[0].prompt_tokens == len(ids)


async def ask(client: Client, ids: list[int], feature: Image, **fields: Any) -> Any:
    await client.put(feature)
    return await client.generate(
        ids=ids,
        features=[feature.placed(offset(ids))],
        sampling={**GREEDY, "logprobs": 0},
        **fields,
    )


def logprobs(answer: Any) -> list[float]:
    return [entry.sampled.logprob for piece in answer.tokens for entry in piece.logprobs]


async def test_two_images_with_the_same_text_are_two_questions(
    client: Client, reference: Reference
):
    answers = []
    for color in ((220, 40, 40), (40, 80, 220)):
        ids, feature = reference.feature("按钮是什么颜色？", screen((270, 600), color, (0.5, 0.5)))
        answers.append(await ask(client, ids, feature, cache_salt="two"))
    assert answers[0].ids() != answers[1].ids()


async def test_an_image_is_found_in_the_cache_under_its_own_salt_only(
    client: Client, reference: Reference
):
    picture = screen((540, 1200), (140, 50, 180), (0.4, 0.6))
    ids, feature = reference.feature("按钮是什么颜色？", picture)
    first = await ask(client, ids, feature, cache_salt="owner-a")
    again = await ask(client, ids, feature, cache_salt="owner-a")
    other = await ask(client, ids, feature, cache_salt="owner-b")
    cached = [answer.started[0].cached_tokens for answer in (first, again, other)]
    assert cached[0] == cached[2] == 0 < cached[1]
    assert first.ids() == again.ids() == other.ids()


async def test_two_images_in_one_prompt_are_both_seen(client: Client, reference: Reference):
    red, red_image = reference.feature("?", screen((270, 600), (220, 40, 40), (0.5, 0.5)))
    _, blue_image = reference.feature("?", screen((270, 600), (40, 80, 220), (0.5, 0.5)))
    await client.put(red_image, blue_image)
    begin = offset(red)
    length = red_image.placed(0).length
    ids = [*red[: begin + length], red[begin - 1], *red[begin:]]
    answers = []
    for second in (red_image, blue_image):
        features = [red_image.placed(begin), second.placed(begin + length + 1)]
        answers.append(
            await client.generate(ids=ids, features=features, sampling={**GREEDY, "logprobs": 0})
        )
    assert logprobs(answers[0]) != logprobs(answers[1])


async def test_malformed_requests_do_not_hurt_the_engine(client: Client):
    picture = image(3)
    await client.put(picture)
    late, long = picture.placed(2), picture.placed(1)
    long.length += 1
    bad = [
        {"ids": []},
        {"ids": [MODEL.vocabulary_size]},
        {"ids": [5] * 8192},
        {"ids": picture.prompt()},
        {"ids": picture.prompt(), "features": [late]},
        {"ids": picture.prompt(), "features": [long]},
        {"ids": picture.prompt(), "features": [picture.placed(1)] * 2},
        {"sampling": {"temperature": float("nan")}},
        {"sampling": {"structured_output": sampling_pb2.StructuredOutput(regex="(")}},
        {"sampling": {"structured_output": sampling_pb2.StructuredOutput(json_schema="{")}},
        {"sampling": {"structured_output": sampling_pb2.StructuredOutput(grammar="root ::=")}},
    ]
    for fields in bad:
        error = await failure(client.generate(**fields))
        assert error.reason in (Reason.INVALID_ARGUMENT, Reason.CONTEXT_LENGTH_EXCEEDED), fields
    assert (await client.generate(sampling=GREEDY)).ids()


@pytest.mark.parametrize(
    "sampling",
    [
        pytest.param({"seed": -1}, id="seed -1"),
        pytest.param({"seed": -(2**63), "n": 3}, id="smallest seed, three choices"),
        pytest.param({"seed": 2**63 - 1, "n": 16}, id="largest seed, sixteen choices"),
        pytest.param({"repetition_penalty": 1e-45}, id="least penalty"),
        pytest.param({"temperature": 1e-45, "top_p": 1e-45, "top_k": 1}, id="least temperature"),
        pytest.param({"temperature": 2, "min_p": 1, "top_k": 1}, id="most temperature"),
        pytest.param({"logit_bias": {0: 100, 1: -100}, "logprobs": 20}, id="bias"),
        pytest.param({"min_tokens": 8, "stop_token_ids": list(range(64))}, id="min and stops"),
    ],
)
async def test_extreme_values_that_are_allowed_do_not_hurt_the_engine(
    client: Client, sampling: dict[str, Any]
):
    answer = await client.generate(sampling={"max_tokens": 8, **sampling})
    assert len(answer.finished) == sampling.get("n", 1)
    for index in answer.finished:
        assert answer.finished[index].completion_tokens == len(answer.ids(index)) > 0


@pytest.mark.parametrize("seed", [-1, 0, 2**63 - 1])
async def test_the_same_seed_gives_the_same_tokens(client: Client, seed: int):
    sampling = {"seed": seed, "temperature": 2.0, "max_tokens": 16, "ignore_eos": True, "n": 2}
    first, second = [await client.generate(sampling=sampling) for _ in range(2)]
    assert [first.ids(0), first.ids(1)] == [second.ids(0), second.ids(1)]
    assert first.ids(0) != first.ids(1)


async def test_a_seed_and_a_prompt_that_is_read_over_several_steps_go_together(client: Client):
    ids = [5 + number % 500 for number in range(8000)]
    sampling = {"seed": 3, "temperature": 2.0, "max_tokens": 8, "ignore_eos": True}
    answers = [
        await client.generate(ids=ids, cache_salt=salt, sampling=sampling) for salt in ("s1", "s2")
    ]
    assert answers[0].ids() == answers[1].ids()
    assert len(answers[0].ids()) == 8


async def test_several_greedy_choices_are_all_the_one(client: Client):
    answer = await client.generate(sampling={**GREEDY, "n": 3})
    assert answer.ids(0) == answer.ids(1) == answer.ids(2)
    assert answer.reason(0) == answer.reason(2)


async def test_the_models_end_token_is_reported(client: Client, reference: Reference):
    ids = reference.inputs("你是谁？")["input_ids"][0].tolist()
    answer = await client.generate(ids=ids, sampling={"temperature": 0.0, "max_tokens": 200})
    assert answer.reason() == "STOP"
    assert answer.finished[0].stop_token_id == answer.ids()[-1] in MODEL.end_token_ids


async def test_a_stop_token_of_the_request_is_told_from_the_models(
    client: Client, reference: Reference
):
    ids = reference.inputs("你是谁？")["input_ids"][0].tolist()
    free = await client.generate(ids=ids, sampling={"temperature": 0.0, "max_tokens": 200})
    stop = free.ids()[2]
    answer = await client.generate(ids=ids, sampling={"temperature": 0.0, "stop_token_ids": [stop]})
    assert (answer.reason(), answer.finished[0].stop_token_id) == ("STOP_SEQUENCE", stop)
    assert answer.ids() == free.ids()[: free.ids().index(stop) + 1]
    end = free.ids()[-1]
    own = {"temperature": 0.0, "max_tokens": 200, "stop_token_ids": [end], "ignore_eos": True}
    assert (await client.generate(ids=ids, sampling=own)).reason() == "STOP_SEQUENCE"


async def test_logit_bias_forces_a_token_and_logprobs_tell_of_it(client: Client):
    answer = await client.generate(
        sampling={**GREEDY, "max_tokens": 3, "logit_bias": {77: 100.0}, "logprobs": 2}
    )
    assert answer.ids() == [77] * 3
    entry = answer.tokens[0].logprobs[0]
    assert (entry.sampled.token_id, len(entry.top)) == (77, 2)
    assert entry.sampled.logprob <= 0
    assert entry.top[0].logprob >= entry.top[1].logprob


async def test_min_tokens_put_the_end_off(client: Client):
    end = MODEL.end_token_ids[0]
    sampling = {**GREEDY, "min_tokens": 5, "logit_bias": {end: 100.0}}
    answer = await client.generate(sampling=sampling)
    assert len(answer.ids()) == 6
    assert end not in answer.ids()[:5]


@pytest.mark.parametrize(
    ("constraint", "accepts"),
    [
        pytest.param({"regex": "(ab|ba){3}"}, lambda text: len(text) == 6, id="regex"),
        pytest.param(
            {"choice": sampling_pb2.ChoiceList(values=["yes", "no"])},
            lambda text: text in ("yes", "no"),
            id="choice",
        ),
        pytest.param(
            {
                "json_schema": json.dumps(
                    {
                        "type": "object",
                        "properties": {"ok": {"type": "boolean"}},
                        "required": ["ok"],
                        "additionalProperties": False,
                    }
                )
            },
            lambda text: set(json.loads(text)) == {"ok"},
            id="json schema",
        ),
        pytest.param({"grammar": 'root ::= "a" "b"'}, lambda text: text == "ab", id="grammar"),
    ],
)
async def test_structured_output_has_its_form(
    client: Client, reference: Reference, constraint: dict[str, Any], accepts: Any
):
    sampling = {
        "temperature": 0.0,
        "max_tokens": 60,
        "structured_output": sampling_pb2.StructuredOutput(**constraint),
    }
    answer = await client.generate(sampling=sampling)
    assert answer.reason() == "STOP"
    assert answer.ids()[-1] in MODEL.end_token_ids
    assert accepts(reference.processor.tokenizer.decode(answer.ids()[:-1]))


async def test_cancelling_frees_the_slot(client: Client):
    call = client.open(request("long", sampling=LONG))
    await call.read()
    await client.until_running(1)
    call.cancel()
    await client.until_running(0, timeout_s=0.5)


async def test_cancelling_before_the_first_token_frees_the_slot(client: Client):
    for number in range(20):
        call = client.open(request(f"early-{number}", ids=[5] * 2000, sampling=LONG))
        reading = asyncio.ensure_future(call.read())
        await asyncio.sleep(number / 4000)
        call.cancel()
        await asyncio.wait([reading])  # cancelled, or with a first event that still came through
    await client.until_running(0, timeout_s=1)


async def test_the_time_limit_ends_with_the_ids_so_far(client: Client):
    answer = await client.generate(time_limit_ms=300, sampling=LONG)
    assert answer.reason() == "TIME_LIMIT"
    assert answer.finished[0].completion_tokens == len(answer.ids()) > 0
    await client.until_running(0, timeout_s=0.5)


async def test_abort_ends_with_reason_cancelled(client: Client):
    whole = asyncio.ensure_future(client.generate(sampling=LONG))
    await client.until_running(1)
    assert await client.abort("g")
    assert (await asyncio.wait_for(whole, 2)).reason() == "CANCELLED"


async def test_more_generations_than_slots_wait_and_all_are_right(client: Client):
    alone = (await client.generate(sampling=GREEDY)).ids()
    answers = await asyncio.gather(
        *(client.generate(f"g{index}", sampling=GREEDY) for index in range(20))
    )
    assert all(answer.ids() == alone for answer in answers)


async def test_a_prompt_met_before_is_found_in_the_cache_under_its_salt_only(client: Client):
    ids = list(range(100, 200))
    salts = ["p", "p", "q"]
    answers = [await client.generate(ids=ids, cache_salt=salt, sampling=GREEDY) for salt in salts]
    cached = [answer.started[0].cached_tokens for answer in answers]
    assert cached[0] == cached[2] == 0 < cached[1]


async def test_the_status_tells_engine_and_model(client: Client):
    status = await client.status()
    assert (status.engine, status.state, status.max_running) == ("vllm", "SERVING", 8)
    assert status.vocabulary_size == MODEL.vocabulary_size
