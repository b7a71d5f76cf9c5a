"""Generations that go on here with ids that another worker sampled (the simulator's tokens tell every position)."""

from typing import Any

import pytest
from hotline.v1 import sampling_pb2
from worker_calls import MODEL, Client, failure, image

from services.runtime.error_table import Reason

KEY = "moved"
WHOLE = {"max_tokens": 40, "ignore_eos": True}


async def whole(worker: Client, **sampling: Any) -> Any:
    return await worker.generate(trace_key=KEY, sampling={**WHOLE, **sampling})


def rest(answer: Any, at: int) -> list[int]:
    """Its ids; fails where a position is missing, doubled, or not that of the whole output."""
    ids: list[int] = []
    for piece in answer.tokens:
        assert piece.position == at + len(ids)
        ids += piece.token_ids
    return ids


@pytest.mark.parametrize("at", [1, 7, 8, 25, 39])
async def test_what_follows_is_what_would_have_followed(worker: Client, at: int):
    ids = (await whole(worker)).ids()
    answer = await worker.generate(trace_key=KEY, sampling=WHOLE, output_token_ids=ids[:at])
    assert rest(answer, at) == ids[at:]
    assert answer.reason() == "LENGTH"
    assert answer.finished[0].completion_tokens == 40
    assert answer.started[0].prompt_tokens == 3


async def test_it_ends_where_it_would_have_ended_by_itself(worker: Client):
    sampling = {"max_tokens": 2000}
    ended = await worker.generate(trace_key=KEY, sampling=sampling)
    ids = ended.ids()
    assert ended.reason() == "STOP"
    answer = await worker.generate(
        trace_key=KEY, sampling=sampling, output_token_ids=ids[: len(ids) // 2]
    )
    half = len(ids) // 2
    assert (rest(answer, half), answer.reason()) == (ids[half:], "STOP")
    assert answer.finished[0].completion_tokens == len(ids)


async def test_least_and_most_tokens_count_what_was_sampled_before(worker: Client):
    ids = (await whole(worker)).ids()
    sampling = {"max_tokens": 30, "min_tokens": 30}
    answer = await worker.generate(trace_key=KEY, sampling=sampling, output_token_ids=ids[:20])
    assert rest(answer, 20) == ids[20:30]


@pytest.mark.parametrize(
    ("sampling", "field"),
    [
        pytest.param({"seed": 5}, "sampling.seed", id="seed"),
        pytest.param({"n": 2}, "sampling.n", id="n"),
        pytest.param({"presence_penalty": 0.5}, "sampling.presence_penalty", id="presence"),
        pytest.param({"frequency_penalty": 0.5}, "sampling.frequency_penalty", id="frequency"),
        pytest.param(
            {"structured_output": sampling_pb2.StructuredOutput(regex="a+")},
            "sampling.structured_output",
            id="grammar",
        ),
    ],
)
async def test_a_state_that_does_not_follow_from_the_ids_is_refused(
    worker: Client, sampling: dict[str, Any], field: str
):
    error = await failure(worker.generate(sampling=WHOLE | sampling, output_token_ids=[5]))
    assert (error.reason, error.field) == (Reason.INVALID_ARGUMENT, field)


@pytest.mark.parametrize(
    "ids",
    [
        pytest.param([5] * 40, id="as many as may be sampled"),
        pytest.param([5, MODEL.vocabulary_size], id="beyond the vocabulary"),
        pytest.param([5, MODEL.image_token_id], id="a placeholder"),
    ],
)
async def test_ids_that_cannot_be_are_refused(worker: Client, ids: list[int]):
    error = await failure(worker.generate(sampling=WHOLE, output_token_ids=ids))
    assert error.reason is Reason.INVALID_ARGUMENT
    assert error.field.startswith("output_token_ids")


async def test_images_of_the_prompt_stand_where_they_stood(worker: Client):
    picture = image()
    await worker.put(picture)
    fields = {"ids": picture.prompt(), "features": [picture.placed(1)], "trace_key": KEY}
    ids = (await worker.generate(sampling=WHOLE, **fields)).ids()
    answer = await worker.generate(sampling=WHOLE, output_token_ids=ids[:9], **fields)
    assert rest(answer, 9) == ids[9:]
