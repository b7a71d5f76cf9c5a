"""The training-time forward pass: the same mathematics as transformers' Glm4v, but batched.

Plain matmul attention is several times faster than torch's CPU flash kernel at these sizes, forward
and backward together, and takes the mask that lets several dialogs share one system prompt.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional
from transformers.models.glm4v import modeling_glm4v

_MEAN = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
_STD = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)
_BLOCKED = -1e4
_rotate: Any = modeling_glm4v.apply_rotary_pos_emb
_rotate_vision: Any = modeling_glm4v.apply_rotary_pos_emb_vision


def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
    """Attention over (batch, heads, length, dim); `bias` (batch or 1, 1, length, length) is added."""
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    mixed: Tensor = scores.softmax(-1).to(value.dtype) @ value
    return mixed


def attention_bias(branches: Tensor) -> Tensor:
    """Causal mask of rows whose tokens belong to branches (batch, length).

    Branch 0 is the system prompt, which every branch sees; branches do not see one another.
    """
    length = branches.shape[1]
    earlier = torch.ones(length, length, dtype=torch.bool).tril()
    query, key = branches[:, :, None], branches[:, None, :]
    seen = earlier & ((key == 0) | (key == query))
    return torch.zeros(seen.shape).masked_fill(~seen, _BLOCKED)[:, None]


def _norm(layer: Any, x: Tensor) -> Tensor:
    out = functional.rms_norm(x.float(), (x.shape[-1],), layer.weight, layer.variance_epsilon)
    return out.to(x.dtype)


def language_logits(
    model: Any, embedded: Tensor, positions: Tensor, bias: Tensor, selected: Tensor
) -> Tensor:
    """Logits at the selected indices of the flattened (batch * length) positions."""
    language = model.model.language_model
    cos, sin = language.rotary_emb(embedded, positions)
    x = embedded
    batch, length, _ = x.shape
    for layer in language.layers:
        attention = layer.self_attn
        normed = _norm(layer.input_layernorm, x)
        query, key, value = (
            projection(normed).view(batch, length, -1, attention.head_dim).transpose(1, 2)
            for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        query, key = _rotate(query, key, cos, sin)
        mixed = attend(query, key, value, bias).transpose(1, 2).reshape(batch, length, -1)
        x = x + _norm(layer.post_self_attn_layernorm, attention.o_proj(mixed))
        x = x + _norm(layer.post_mlp_layernorm, layer.mlp(_norm(layer.post_attention_layernorm, x)))
    logits: Tensor = model.lm_head(_norm(language.norm, x.reshape(-1, x.shape[-1])[selected]))
    return logits


def patches(images: npt.NDArray[np.uint8], rows: int, columns: int) -> Tensor:
    """(count, rows*28, columns*28, 3) pixels -> (count*rows*columns*4, 588) normalised patches.

    The order is Glm4vImageProcessor's; the copy of the frame along time is left out.
    """
    scaled = (images.astype(np.float32) / 255 - _MEAN) / _STD
    split = scaled.reshape(len(images), rows, 2, 14, columns, 2, 14, 3)
    ordered = split.transpose(0, 1, 4, 2, 5, 7, 3, 6)
    return torch.from_numpy(ordered.reshape(len(images) * rows * columns * 4, -1))


def image_tokens(vision: Any, pixels: Tensor, count: int, rows: int, columns: int) -> Tensor:
    """Embeddings (count*rows*columns, hidden) of `count` images of one size."""
    height, width = rows * 2, columns * 2

    def ordered(grid: Tensor) -> Tensor:
        return grid.reshape(rows, 2, columns, 2).permute(0, 2, 1, 3).reshape(-1)

    y = ordered(torch.arange(height)[:, None].expand(height, width))
    x = ordered(torch.arange(width)[None].expand(height, width))
    # The two time steps of a still image are equal, so their filters may be added.
    kernel = vision.patch_embed.proj.weight.sum(2)
    states = functional.linear(pixels, kernel.flatten(1), vision.patch_embed.proj.bias)
    states = vision.post_conv_layernorm(states).view(count, height * width, -1)
    states = states + _positions(vision, x, y, height, width)
    cos, sin = vision.rotary_pos_emb(states, torch.stack((y, x), 1))
    for block in vision.blocks:
        heads = block.attn.num_heads
        qkv = block.attn.qkv(block.norm1(states)).view(count, height * width, 3, heads, -1)
        query, key, value = qkv.unbind(2)
        query, key = _rotate_vision(query, key, cos, sin)
        mixed = attend(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), None)
        states = states + block.attn.proj(mixed.transpose(1, 2).flatten(2))
        states = states + block.mlp(block.norm2(states))
    merged = vision.post_layernorm(states).view(count * rows * columns, 2, 2, -1)
    kernel = vision.downsample.weight
    joined = merged.permute(0, 3, 1, 2).flatten(1)
    joined = functional.linear(joined, kernel.flatten(1), vision.downsample.bias)
    tokens: Tensor = vision.merger(joined)
    return tokens


def _positions(vision: Any, x: Tensor, y: Tensor, height: int, width: int) -> Tensor:
    """The learned position table, interpolated to this grid as transformers does."""
    table = vision.embeddings.position_embedding.weight
    side = int(len(table) ** 0.5)
    grid = torch.stack(((x + 0.5) / width * 2 - 1, (y + 0.5) / height * 2 - 1), -1)
    sampled = functional.grid_sample(
        table.view(side, side, -1).permute(2, 0, 1)[None].float(), grid[None, :, None].float(),
        mode="bicubic", align_corners=False, padding_mode="border",
    )  # fmt: skip
    return sampled[0, :, :, 0].t()
