"""Prompt and Sampling -> what vLLM takes. Imports vLLM and torch inside its functions only."""

import hashlib
from typing import Any

from services.worker.engine import Constraint, FeatureTensor, Prompt, Sampling
from services.worker.model import ImageGeometry

SEED_MODULUS = 2**63 - 16
"""vLLM keeps seeds as signed 64-bit numbers, takes -1 for "none", and adds the choice's index (below 16)."""


def multimodal_hash(cache_salt: str, feature_digest: bytes) -> str:
    """The engine's name of an image, another one under each salt: vLLM's encoder cache knows no salt itself."""
    salt = cache_salt.encode()
    head = b"hotline.v1.multimodal\0" + len(salt).to_bytes(4, "little")
    return hashlib.sha256(head + salt + feature_digest).hexdigest()


def engine_input(prompt: Prompt, geometry: ImageGeometry | None) -> Any:
    """vLLM's TokensInput or MultiModalInput.

    Args:
        geometry: how the model cuts images; a prompt with features needs it.
    """
    from vllm.inputs.engine import mm_input, tokens_input

    salt = prompt.cache_salt or None
    ids = list(prompt.token_ids)
    if not prompt.features or geometry is None:
        return tokens_input(ids, cache_salt=salt)
    from vllm.multimodal.inputs import PlaceholderRange

    digests = [feature.tensor.digest for feature in prompt.features]
    ranges = [
        PlaceholderRange(offset=feature.placement.offset, length=feature.placement.length)
        for feature in prompt.features
    ]
    return mm_input(
        prompt_token_ids=ids,
        mm_kwargs=_items([feature.tensor for feature in prompt.features], geometry),
        mm_hashes={"image": [multimodal_hash(prompt.cache_salt, digest) for digest in digests]},
        mm_placeholders={"image": ranges},
        cache_salt=salt,
    )


def _items(tensors: list[FeatureTensor], geometry: ImageGeometry) -> Any:
    """vLLM's MultiModalKwargsItems: pixel_values uint8 [patches, channels * temporal * patch * patch], grids int64."""
    import torch
    from transformers import BatchFeature
    from vllm.multimodal.inputs import MultiModalFieldConfig, MultiModalKwargsItems

    grids = torch.tensor([tensor.grid for tensor in tensors])
    pixels = torch.cat([_pixels(tensor, geometry) for tensor in tensors])
    return MultiModalKwargsItems.from_hf_inputs(
        BatchFeature({"pixel_values": pixels, "image_grid_thw": grids}),
        {
            "pixel_values": MultiModalFieldConfig.flat_from_sizes("image", grids.prod(-1)),
            "image_grid_thw": MultiModalFieldConfig.batched("image", keep_on_cpu=True),
        },
    )


def _pixels(tensor: FeatureTensor, geometry: ImageGeometry) -> Any:
    """uint8 [patches, channels * temporal * patch * patch], as the processor cuts them: the frame is repeated."""
    import torch

    patches = tensor.shape[0]
    frame = torch.frombuffer(tensor.data, dtype=torch.uint8)
    frame = frame.view(patches, geometry.channels, 1, geometry.patch_size**2)
    return frame.expand(-1, -1, geometry.temporal_size, -1).reshape(patches, -1)


def sampling_parameters(sampling: Sampling, defaults: dict[str, Any]) -> Any:
    """vLLM's SamplingParams.

    Args:
        defaults: the model's generation configuration, under vLLM's names; for fields that are None.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    own = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
    }
    values = {name: defaults.get(name) if value is None else value for name, value in own.items()}
    return SamplingParams(
        **{name: value for name, value in values.items() if value is not None},
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        seed=None if sampling.seed is None else sampling.seed % SEED_MODULUS,
        max_tokens=sampling.max_tokens,
        min_tokens=sampling.min_tokens,
        stop_token_ids=list(sampling.stop_token_ids),
        ignore_eos=sampling.ignore_eos,
        logprobs=sampling.logprobs,
        logit_bias=dict(sampling.logit_bias) or None,
        n=sampling.n,
        structured_outputs=_structured_outputs(sampling.constraint),
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )


def _structured_outputs(constraint: Constraint | None) -> Any:
    if constraint is None:
        return None
    from vllm.sampling_params import StructuredOutputsParams

    if constraint.kind == "json_object":
        return StructuredOutputsParams(json_object=True)
    if constraint.kind == "choice":
        return StructuredOutputsParams(choice=list(constraint.choices))
    name = {"json_schema": "json"}.get(constraint.kind, constraint.kind)
    return StructuredOutputsParams(**{name: constraint.text})
