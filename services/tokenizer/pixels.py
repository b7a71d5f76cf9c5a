"""Pixels to the patches that the model's vision tower reads, by the model's own image processor."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.runtime.errors import InvalidMediaError


@dataclass(frozen=True)
class Patches:
    """One image, cut into patches, before normalisation (the engine normalises on its device)."""

    data: bytes
    """uint8, shape `shape`, C order; one temporal frame: the model's duplicate of it is left out."""
    shape: tuple[int, int]
    """(t * h * w, channels * patch * patch)."""
    grid: tuple[int, int, int]
    """(t, h, w) in patches."""
    token_count: int
    """Placeholder tokens: t * h * w / merge^2."""


class PatchCutter:
    """Calls a transformers image processor of the Glm4v or Qwen2-VL family. Thread-safe.

    Args:
        processor: the image processor; `patch_size`, `temporal_patch_size` and `merge_size` are read from it.
        min_pixels, max_pixels: replace the processor's own size budget where not None.
    """

    def __init__(self, processor: Any, min_pixels: int | None, max_pixels: int | None) -> None:
        self._processor = processor
        self._patch: int = processor.patch_size
        self._frames: int = processor.temporal_patch_size
        self._merge: int = processor.merge_size
        self._size = {
            "shortest_edge": min_pixels or processor.size["shortest_edge"],
            "longest_edge": max_pixels or processor.size["longest_edge"],
        }

    def cut(self, rgb: NDArray[np.uint8], field: str) -> Patches:
        """Resize by the model's rule and cut.

        Args:
            rgb: uint8, (height, width, 3).
            field: the part's path in the request, for errors.

        Raises:
            InvalidMediaError: the processor refuses the image's shape.
        """
        import torch

        image = torch.from_numpy(rgb.transpose(2, 0, 1).copy())
        try:
            with torch.inference_mode():
                made = self._processor(
                    images=[image],
                    size=self._size,
                    do_rescale=False,
                    do_normalize=False,
                    input_data_format="channels_first",
                    return_tensors="pt",
                )
                grid = made["image_grid_thw"][0].tolist()
                pixels = made["pixel_values"]
                framed = pixels.view(pixels.shape[0], -1, self._frames, self._patch * self._patch)
                single = framed[:, :, 0].reshape(pixels.shape[0], -1)
        except ValueError as error:
            height, width = rgb.shape[:2]
            raise InvalidMediaError(
                field, f"the model's image processor refuses an image of {width} x {height} pixels"
            ) from error
        t, h, w = grid
        return Patches(
            data=single.contiguous().numpy().tobytes(),
            shape=(single.shape[0], single.shape[1]),
            grid=(t, h, w),
            token_count=t * h * w // self._merge**2,
        )
