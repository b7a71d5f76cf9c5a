"""What the model's folder says about token ids and images; read without any model library."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt
from pathlib import Path
from typing import Any

from services.worker.engine import Grid

MAX_ASPECT_RATIO = 200
"""Glm4v's smart_resize refuses longer images."""


@dataclass(frozen=True)
class ImageGeometry:
    """How the model cuts images."""

    merge_size: int
    """Patches on a side that become one token."""
    patch_size: int
    """Pixels on a side of a patch."""
    channels: int
    temporal_size: int
    """Frames in one patch; an image is repeated to fill them."""
    max_tokens: int
    """Placeholder tokens of the largest image."""

    @property
    def patch_bytes(self) -> int:
        """One frame of one patch, uint8."""
        return self.channels * self.patch_size**2

    def tokens(self, grid: Grid) -> int:
        """Placeholder tokens of an image."""
        return grid.patches // self.merge_size**2

    def largest_grid(self) -> Grid:
        """A near-square grid of nearly max_tokens."""
        rows = max(1, int(self.max_tokens**0.5))
        return Grid(1, rows * self.merge_size, self.max_tokens // rows * self.merge_size)


@dataclass(frozen=True)
class ModelFacts:
    """What the service needs to know of a model."""

    vocabulary_size: int
    context_tokens: int
    end_token_ids: tuple[int, ...]
    """Rising."""
    placeholder_token_ids: frozenset[int]
    """Ids that stand for media in a prompt."""
    image_token_id: int | None
    images: ImageGeometry | None
    """None: the model sees no images."""
    ordinary_ids: range
    """The longest run of ids without end, placeholder or special tokens."""
    greedy_by_default: bool
    """The generation configuration says do_sample: false."""


def read_model(folder: Path, mm_processor_kwargs: Mapping[str, Any]) -> ModelFacts:
    """Read config.json, generation_config.json, the processor's configuration and tokenizer.json of a folder.

    Args:
        mm_processor_kwargs: `max_pixels` or `size.longest_edge` replace the processor's pixel budget.

    Raises:
        ValueError: a file or a key that every model has is missing.
    """
    config = _read(folder / "config.json")
    if not config:
        raise ValueError(f"{folder} has no config.json")
    text = {**config, **config.get("text_config", {})}
    generation = _read(folder / "generation_config.json")
    ends = generation.get("eos_token_id", text.get("eos_token_id")) or []
    end_ids = sorted(set(ends if isinstance(ends, list) else [ends]))
    placeholders = {
        config[key] for key in ("image_token_id", "video_token_id") if config.get(key) is not None
    }
    special = {token["id"] for token in _read(folder / "tokenizer.json").get("added_tokens", [])}
    vocabulary_size = int(text["vocab_size"])
    return ModelFacts(
        vocabulary_size=vocabulary_size,
        context_tokens=int(text.get("max_position_embeddings") or 2**31),
        end_token_ids=tuple(end_ids),
        placeholder_token_ids=frozenset(placeholders),
        image_token_id=config.get("image_token_id"),
        images=_images(config, folder, mm_processor_kwargs),
        ordinary_ids=_longest_run(special | placeholders | set(end_ids), vocabulary_size),
        greedy_by_default=generation.get("do_sample") is False,
    )


def _images(
    config: Mapping[str, Any], folder: Path, kwargs: Mapping[str, Any]
) -> ImageGeometry | None:
    vision = config.get("vision_config")
    if not vision or config.get("image_token_id") is None:
        return None
    processor = _read(folder / "processor_config.json").get("image_processor")
    processor = processor or _read(folder / "preprocessor_config.json")
    size = {**processor.get("size", {}), **kwargs.get("size", {})}
    pixels = kwargs.get("max_pixels") or size.get("longest_edge") or processor.get("max_pixels")
    if pixels is None:
        raise ValueError(f"the image processor's configuration in {folder} has no pixel budget")
    merge, patch = int(vision["spatial_merge_size"]), int(vision["patch_size"])
    temporal = int(vision.get("temporal_patch_size", 1))
    return ImageGeometry(
        merge_size=merge,
        patch_size=patch,
        channels=int(vision.get("in_channels", 3)),
        temporal_size=temporal,
        # The budget counts every frame of a patch.
        max_tokens=_max_tokens(int(pixels) // (temporal * (patch * merge) ** 2)),
    )


def _max_tokens(budget: int) -> int:
    """The most that smart_resize makes of a budget: a strip, one token wide, may exceed it."""
    return max(1, budget, isqrt(MAX_ASPECT_RATIO * budget))


def _longest_run(taken: set[int], size: int) -> range:
    edges = [-1, *sorted(i for i in taken if 0 <= i < size), size]
    return max((range(low + 1, high) for low, high in pairwise(edges)), key=len)


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    document = json.loads(path.read_text("utf-8"))
    return document if isinstance(document, dict) else {}
