"""What is read from a model's folder."""

import json
from pathlib import Path
from typing import Any

import pytest
from worker_calls import MODEL, MODEL_PATH

from services.worker.engine import Grid
from services.worker.model import read_model

TEXT_CONFIG = {"model_type": "llama", "vocab_size": 100, "eos_token_id": 2}
GLM_VISION = {"spatial_merge_size": 2, "patch_size": 14, "temporal_patch_size": 2}


def folder(path: Path, **documents: Any) -> Path:
    for name, document in documents.items():
        (path / f"{name}.json").write_text(json.dumps(document), "utf-8")
    return path


def test_the_default_models_numbers_are_those_of_transformers():
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    config = AutoConfig.from_pretrained(MODEL_PATH)
    assert MODEL.vocabulary_size == config.text_config.vocab_size
    assert MODEL.image_token_id == config.image_token_id
    assert MODEL.end_token_ids == tuple(
        sorted(GenerationConfig.from_pretrained(MODEL_PATH).eos_token_id)
    )
    special = set(AutoTokenizer.from_pretrained(MODEL_PATH).added_tokens_decoder)
    assert not special & set(MODEL.ordinary_ids)
    assert len(MODEL.ordinary_ids) > 1000


@pytest.mark.parametrize(
    ("height", "width"),
    [
        pytest.param(2400, 1080, id="phone"),
        pytest.param(4000, 4000, id="square"),
        pytest.param(5600, 28, id="aspect 200"),
        pytest.param(1, 1, id="one pixel"),
    ],
)
def test_no_image_of_the_processor_has_more_tokens_than_the_limit(height: int, width: int):
    from transformers.models.glm4v.image_processing_glm4v import smart_resize

    size = json.loads((MODEL_PATH / "processor_config.json").read_text())["image_processor"]["size"]
    rows, columns = smart_resize(
        num_frames=2,
        height=max(height, 28),
        width=max(width, 28),
        factor=28,
        min_pixels=size["shortest_edge"],
        max_pixels=size["longest_edge"],
    )
    assert MODEL.images is not None
    grid = Grid(1, rows // 14, columns // 14)
    assert MODEL.images.tokens(grid) <= MODEL.images.max_tokens


def test_the_largest_grid_is_within_the_limit_and_near_it():
    assert MODEL.images is not None
    grid = MODEL.images.largest_grid()
    assert grid.h % 2 == grid.w % 2 == 0
    assert 0.8 * MODEL.images.max_tokens <= MODEL.images.tokens(grid) <= MODEL.images.max_tokens


@pytest.mark.parametrize(
    "kwargs",
    [
        pytest.param({"max_pixels": 5_000_000}, id="max_pixels"),
        pytest.param({"size": {"longest_edge": 5_000_000}}, id="size"),
    ],
)
def test_processor_kwargs_replace_the_pixel_budget(kwargs: dict[str, Any]):
    images = read_model(MODEL_PATH, kwargs).images
    assert images is not None
    assert images.max_tokens == 3188


def test_a_strip_may_have_more_tokens_than_the_budget():
    images = read_model(MODEL_PATH, {"max_pixels": 28 * 28 * 2 * 50}).images
    assert images is not None
    assert images.max_tokens == 100  # 100 x 1 tokens, an aspect ratio of 200 at half the scale


def test_a_text_model_has_no_images(tmp_path: Path):
    facts = read_model(folder(tmp_path, config=TEXT_CONFIG), {})
    assert (facts.images, facts.image_token_id) == (None, None)
    assert facts.end_token_ids == (2,)


def test_ordinary_ids_are_the_longest_run_between_special_ones(tmp_path: Path):
    tokenizer = {"added_tokens": [{"id": 0}, {"id": 1}, {"id": 90}]}
    facts = read_model(folder(tmp_path, config=TEXT_CONFIG, tokenizer=tokenizer), {})
    assert facts.ordinary_ids == range(3, 90)


def test_the_old_name_of_the_processors_file_is_read_too(tmp_path: Path):
    config = {**TEXT_CONFIG, "vision_config": GLM_VISION, "image_token_id": 50}
    processor = {"size": {"longest_edge": 28 * 28 * 2 * 700}}
    path = folder(tmp_path, config=config, preprocessor_config=processor)
    images = read_model(path, {}).images
    assert images is not None
    assert (images.max_tokens, images.patch_bytes) == (700, 588)


@pytest.mark.parametrize(
    ("do_sample", "greedy"),
    [
        pytest.param(False, True, id="no"),
        pytest.param(True, False, id="yes"),
        pytest.param(None, False, id="absent"),
    ],
)
def test_a_model_that_says_do_sample_false_is_greedy_by_default(
    tmp_path: Path, do_sample: bool | None, greedy: bool
):
    generation = {} if do_sample is None else {"do_sample": do_sample}
    path = folder(tmp_path, config=TEXT_CONFIG, generation_config=generation)
    assert read_model(path, {}).greedy_by_default is greedy


def test_a_folder_without_a_configuration_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match=r"config\.json"):
        read_model(tmp_path, {})
