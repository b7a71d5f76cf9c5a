"""transformers' own model and processor in float32, and prompts as the tokenizer sends them to a worker."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotline.v1 import feature_pb2

from services.runtime.digest import feature_digest
from services.worker.engine import Grid


@dataclass(frozen=True)
class Rendered:
    """A prompt's ids, and its image's bytes and header, if it has one."""

    ids: list[int]
    header: feature_pb2.FeatureHeader | None = None
    data: bytes = b""

    def placements(self, image_token: int) -> list[feature_pb2.FeaturePlacement]:
        """Where the image stands."""
        if self.header is None:
            return []
        return [
            feature_pb2.FeaturePlacement(
                feature_digest=self.header.feature_digest,
                modality=feature_pb2.MODALITY_IMAGE,
                offset=self.ids.index(image_token),
                length=self.ids.count(image_token),
                grid=self.header.grid,
            )
        ]


class Reference:
    """One model."""

    def __init__(self, model_path: Path) -> None:
        import torch
        from transformers import AutoProcessor, Glm4vForConditionalGeneration

        torch.set_num_threads(1)
        self.processor: Any = AutoProcessor.from_pretrained(model_path)
        model: Any = Glm4vForConditionalGeneration.from_pretrained(model_path, dtype=torch.float32)
        self._model = model.eval()
        self.image_token: int = model.config.image_token_id

    def greedy(self, text: str, picture: Any, max_tokens: int) -> list[int]:
        """transformers' ids."""
        inputs = self._inputs(text, picture)
        output = self._model.generate(**inputs, max_new_tokens=max_tokens, do_sample=False)
        ids: list[int] = output[0, inputs["input_ids"].shape[1] :].tolist()
        return ids

    def render(self, text: str, picture: Any = None) -> Rendered:
        """Ids and bytes for the worker: uint8, one temporal frame."""
        import torch

        if picture is None:
            return Rendered(self._inputs(text, None)["input_ids"][0].tolist())
        plain = {"do_rescale": False, "do_normalize": False}
        inputs = self._inputs(text, picture, images_kwargs=plain)
        pixels = inputs["pixel_values"]
        frames = pixels.to(torch.uint8).view(pixels.shape[0], 3, 2, -1)
        data = frames[:, :, 0].contiguous().numpy().tobytes()
        grid = Grid(*inputs["image_grid_thw"][0].tolist())
        shape = (grid.patches, len(data) // grid.patches)
        header = feature_pb2.FeatureHeader(
            feature_digest=feature_digest(1, 1, shape, grid, data),
            modality=feature_pb2.MODALITY_IMAGE,
            data_type=feature_pb2.DATA_TYPE_UINT8,
            shape=shape,
            grid=feature_pb2.PatchGrid(t=grid.t, h=grid.h, w=grid.w),
            size_bytes=len(data),
        )
        return Rendered(inputs["input_ids"][0].tolist(), header, data)

    def _inputs(self, text: str, picture: Any, **options: Any) -> Any:
        content = [{"type": "image"}] if picture is not None else []
        messages = [{"role": "user", "content": [*content, {"type": "text", "text": text}]}]
        prompt = self.processor.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        images = {} if picture is None else {"images": [picture]}
        return self.processor(text=[prompt], return_tensors="pt", **images, **options)


def screen(colour: tuple[int, int, int], at: tuple[float, float], size: tuple[int, int]) -> Any:
    """A phone screen with one coloured button, its centre given as shares of width and height."""
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", size, (245, 245, 245))
    x, y, half = at[0] * size[0], at[1] * size[1], size[0] / 4
    ImageDraw.Draw(picture).rectangle((x - half, y - half / 3, x + half, y + half / 3), fill=colour)
    return picture
