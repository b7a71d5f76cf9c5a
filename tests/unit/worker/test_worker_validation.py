"""Every row of what a worker refuses before its engine sees it."""

import math
from typing import Any

import pytest
from hotline.v1 import feature_pb2, sampling_pb2
from worker_calls import GRID, MODEL, Client, failure, image
from worker_running import StartWorker

from services.runtime.error_table import Reason
from services.worker.engine import Grid

VOCABULARY = MODEL.vocabulary_size
CONTEXT = 8192
IMAGE = image()
ASPECT = image(grid=Grid(1, 2, 2))
TOKEN = MODEL.image_token_id or 0


def structured(**fields: Any) -> dict[str, Any]:
    return {"sampling": {"structured_output": sampling_pb2.StructuredOutput(**fields)}}


def sampling_case(name: str, value: Any) -> Any:
    return pytest.param({"sampling": {name: value}}, f"sampling.{name}", id=f"{name}={value}")


def placed(offset: int = 1, **changes: Any) -> list[feature_pb2.FeaturePlacement]:
    placement = IMAGE.placed(offset)
    for name, value in changes.items():
        if isinstance(value, Grid):
            value = feature_pb2.PatchGrid(t=value.t, h=value.h, w=value.w)
            getattr(placement, name).CopyFrom(value)
        else:
            setattr(placement, name, value)
    return [placement]


def image_case(name: str, field: str, features: Any = None, ids: Any = None) -> Any:
    fields = {"ids": ids or IMAGE.prompt(), "features": placed() if features is None else features}
    return pytest.param(fields, field, id=name)


SAMPLING = [
    *[sampling_case("temperature", value) for value in (-0.1, 2.1, math.nan, math.inf, -math.inf)],
    *[sampling_case("top_p", value) for value in (0, -1, 1.1, math.nan)],
    *[sampling_case("top_k", value) for value in (-2, VOCABULARY + 1)],
    *[sampling_case("min_p", value) for value in (-0.1, 1.1, math.nan)],
    *[sampling_case("presence_penalty", value) for value in (-2.1, 2.1, math.nan)],
    *[sampling_case("frequency_penalty", value) for value in (-2.1, 2.1, math.inf)],
    *[sampling_case("repetition_penalty", value) for value in (0, -1, 2.1, math.nan)],
    sampling_case("max_tokens", 0),
    sampling_case("logprobs", 21),
    *[sampling_case("n", value) for value in (0, 17, 10_000)],
    sampling_case("stop", ["</answer>"]),
    sampling_case("stop_token_ids", [VOCABULARY]),
    sampling_case("stop_token_ids", [5] * 65),
    sampling_case("logit_bias", {VOCABULARY: 1.0}),
    sampling_case("logit_bias", dict.fromkeys(range(1025), 1.0)),
    pytest.param({"sampling": {"logit_bias": {5: 101}}}, "sampling.logit_bias[5]", id="bias 101"),
    pytest.param(
        {"sampling": {"logit_bias": {5: math.nan}}}, "sampling.logit_bias[5]", id="bias NaN"
    ),
    pytest.param(
        {"sampling": {"min_tokens": 6, "max_tokens": 5}}, "sampling.min_tokens", id="min above max"
    ),
    pytest.param(structured(), "sampling.structured_output", id="no constraint"),
    pytest.param(
        structured(json_object=False), "sampling.structured_output", id="json_object false"
    ),
    pytest.param(
        structured(regex="a" * 4097), "sampling.structured_output.regex", id="regex too long"
    ),
    pytest.param(
        structured(json_schema=""), "sampling.structured_output.json_schema", id="schema empty"
    ),
    pytest.param(
        structured(json_schema='{"a": "' + "x" * 16_384 + '"}'),
        "sampling.structured_output.json_schema",
        id="schema long",
    ),
    pytest.param(
        structured(json_schema='{"a":' * 33 + "1" + "}" * 33),
        "sampling.structured_output.json_schema",
        id="schema deep",
    ),
    pytest.param(
        structured(json_schema="[" * 16_000),
        "sampling.structured_output.json_schema",
        id="schema that never ends",
    ),
    pytest.param(
        structured(json_schema="[1]"), "sampling.structured_output.json_schema", id="schema a list"
    ),
    pytest.param(
        structured(grammar="a" * 8193), "sampling.structured_output.grammar", id="grammar long"
    ),
    pytest.param(
        structured(choice=sampling_pb2.ChoiceList()),
        "sampling.structured_output.choice.values",
        id="no choices",
    ),
    pytest.param(
        structured(choice=sampling_pb2.ChoiceList(values=["a"] * 257)),
        "sampling.structured_output.choice.values",
        id="many choices",
    ),
    pytest.param(
        structured(choice=sampling_pb2.ChoiceList(values=["a", ""])),
        "sampling.structured_output.choice.values[1]",
        id="empty choice",
    ),
    pytest.param(
        structured(choice=sampling_pb2.ChoiceList(values=["a" * 1025])),
        "sampling.structured_output.choice.values[0]",
        id="long choice",
    ),
]
PROMPT = [
    pytest.param({"ids": []}, "prompt_token_ids", id="empty prompt"),
    pytest.param({"ids": [5, VOCABULARY]}, "prompt_token_ids[1]", id="id out of the vocabulary"),
    pytest.param({"ids": [2**32 - 1]}, "prompt_token_ids[0]", id="largest id of the wire"),
    pytest.param({"ids": [5, TOKEN, 6]}, "features", id="image token in a text"),
    pytest.param({"generation_id": ""}, "generation_id", id="no generation id"),
    pytest.param({"generation_id": "a" * 129}, "generation_id", id="long generation id"),
    pytest.param({"generation_id": "a b"}, "generation_id", id="blank in generation id"),
    pytest.param({"generation_id": "ä"}, "generation_id", id="letter out of ASCII"),
    pytest.param({"cache_salt": "ä" * 33}, "cache_salt", id="salt of 66 bytes"),
    pytest.param({"trace_key": "a" * 65}, "trace_key", id="trace key of 65 bytes"),
    pytest.param({"priority": -101}, "priority", id="priority -101"),
    pytest.param({"priority": 101}, "priority", id="priority 101"),
]
IMAGES = [
    image_case("too many images", "features", placed() * 5),
    image_case(
        "digest of 31 bytes", "features[0].feature_digest", placed(feature_digest=b"a" * 31)
    ),
    image_case("a sound", "features[0].modality", placed(modality=feature_pb2.MODALITY_AUDIO)),
    image_case("no modality", "features[0].modality", placed(modality=0)),
    image_case("a modality without a name", "features[0].modality", placed(modality=77)),
    image_case("no grid", "features[0].grid", placed(grid=Grid(0, 0, 0))),
    image_case("t of 2", "features[0].grid", placed(grid=Grid(2, 4, 2))),
    image_case("odd rows", "features[0].grid", placed(grid=Grid(1, 5, 4))),
    image_case("huge grid", "features[0].grid", placed(grid=Grid(1, 2**31, 2**31))),
    image_case("grid above the limit", "features[0].grid", placed(grid=Grid(1, 2, 2000))),
    image_case("longer than its grid", "features[0].length", placed(length=7)),
    image_case("shorter than its grid", "features[0].length", placed(length=1)),
    image_case("past the end", "features[0].offset", placed(offset=3)),
    image_case("far past the end", "features[0].offset", placed(offset=2**32 - 1)),
    image_case("one too early", "prompt_token_ids[0]", placed(offset=0)),
    image_case("one too late", "prompt_token_ids[5]", placed(offset=2)),
    image_case("uncovered image token", "features", ids=[*IMAGE.prompt(), TOKEN]),
    image_case("overlap", "features[1].offset", placed() + placed()),
    image_case(
        "falling offsets",
        "features[1].offset",
        placed(offset=6) + placed(offset=1),
        ids=IMAGE.prompt() + IMAGE.prompt()[1:],
    ),
]


@pytest.mark.parametrize(("fields", "field"), [*SAMPLING, *PROMPT, *IMAGES])
async def test_a_malformed_request_is_refused_by_the_name_of_its_field(
    worker: Client, fields: dict[str, Any], field: str
):
    error = await failure(worker.generate(**fields))
    assert error.reason is Reason.INVALID_ARGUMENT
    assert error.field == field
    assert error.metadata["limit"]


async def test_after_every_malformed_request_a_good_one_is_served(worker: Client):
    for case in [*SAMPLING, *PROMPT, *IMAGES]:
        await failure(worker.generate(**case.values[0]))
    assert (await worker.generate(sampling={"max_tokens": 3})).reason() == "LENGTH"
    assert (await worker.status()).running == 0


@pytest.mark.parametrize(
    "sampling",
    [
        pytest.param({"temperature": 0, "top_p": 1, "top_k": 0, "min_p": 0}, id="lower"),
        pytest.param(
            {"temperature": 2, "top_k": VOCABULARY, "min_p": 1, "logprobs": 20}, id="upper"
        ),
        pytest.param({"top_k": -1, "presence_penalty": -2, "frequency_penalty": -2}, id="negative"),
        pytest.param({"repetition_penalty": 2, "presence_penalty": 2, "n": 16}, id="penalties"),
        pytest.param({"seed": -(2**63), "stop_token_ids": [VOCABULARY - 1] * 64}, id="seed"),
        pytest.param({"seed": 2**63 - 1, "logit_bias": {0: -100, 1: 100}}, id="bias"),
        pytest.param({"min_tokens": 2}, id="min without max"),
    ],
)
async def test_values_at_the_ends_of_their_ranges_are_served(
    worker: Client, sampling: dict[str, Any]
):
    answer = await worker.generate(sampling={"max_tokens": 3, **sampling})
    assert answer.reason() == "LENGTH"


async def test_a_prompt_as_long_as_the_context_is_refused_with_both_numbers(worker: Client):
    error = await failure(worker.generate(ids=[5] * CONTEXT))
    assert error.reason is Reason.CONTEXT_LENGTH_EXCEEDED
    assert (error.metadata["prompt_tokens"], error.metadata["context_tokens"]) == ("8192", "8192")


async def test_a_prompt_one_below_the_context_has_room_for_one_token(worker: Client):
    answer = await worker.generate(ids=[5] * (CONTEXT - 1), sampling={"min_tokens": 9})
    assert (answer.reason(), len(answer.ids())) == ("LENGTH", 1)


async def test_max_tokens_above_the_room_mean_the_room(worker: Client):
    answer = await worker.generate(
        ids=[5] * (CONTEXT - 4), sampling={"max_tokens": 2**32 - 1, "ignore_eos": True}
    )
    assert (answer.reason(), len(answer.ids())) == ("LENGTH", 4)


async def test_what_a_later_version_builds_is_unimplemented(worker: Client):
    assert (await failure(worker.generate(adapter="chess"))).reason is Reason.UNIMPLEMENTED


async def test_features_that_were_never_pushed_are_named_by_their_digests(worker: Client):
    absent = image(200)
    error = await failure(worker.generate(ids=absent.prompt(), features=[absent.placed(1)]))
    assert error.reason is Reason.FEATURES_MISSING
    assert error.metadata["digests"] == absent.header.feature_digest.hex()


async def test_a_placement_whose_grid_is_not_its_tensors_is_refused(worker: Client):
    wide = image(201, Grid(1, 2, 8))
    await worker.put(wide)
    placement = wide.placed(1)
    placement.grid.CopyFrom(feature_pb2.PatchGrid(t=1, h=GRID.h, w=GRID.w))
    error = await failure(worker.generate(ids=wide.prompt(), features=[placement]))
    assert (error.reason, error.field) == (Reason.INVALID_ARGUMENT, "features[0].grid")


async def test_a_worker_without_images_refuses_them(start_worker: StartWorker):
    running = await start_worker(max_images=0)
    error = await failure(running.client.generate(ids=IMAGE.prompt(), features=placed()))
    assert (error.reason, error.field) == (Reason.INVALID_ARGUMENT, "features")
    assert (await failure(running.client.put(IMAGE))).field == "header.modality"
