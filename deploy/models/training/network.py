"""The network's shape and its starting weights."""

import math
from typing import Any

import torch
from tokenizer import MAX_POSITIONS
from transformers import Glm4vConfig, Glm4vForConditionalGeneration, PreTrainedTokenizerFast
from vocabulary import COLOURS, EOS_TOKENS, X_TOKENS, Y_TOKENS

HIDDEN, LAYERS, HEADS = 192, 4, 3
HEAD = HIDDEN // HEADS
ROTARY = HEAD // 2  # the first half of every head is rotated; the rest ignores positions


def token_ids(tokenizer: PreTrainedTokenizerFast, words: list[str]) -> list[int]:
    """The id of each word's last token."""
    return [tokenizer(word, add_special_tokens=False)["input_ids"][-1] for word in words]


def coordinate_ids(tokenizer: PreTrainedTokenizerFast) -> tuple[list[int], list[int]]:
    """Ids of the x tokens and of the y tokens, from left to right and from top to bottom."""
    xs = [tokenizer(x + ",", add_special_tokens=False)["input_ids"][0] for x in X_TOKENS]
    return xs, token_ids(tokenizer, ["," + y for y in Y_TOKENS])


def make_model(tokenizer: PreTrainedTokenizerFast) -> Any:
    """An untrained network whose weights already hold the circuits that are slow to emerge."""
    ids: Any = tokenizer.convert_tokens_to_ids
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": HIDDEN,
        "intermediate_size": 512,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "attention_bias": True,
        "max_position_embeddings": MAX_POSITIONS,
        "rms_norm_eps": 1e-5,
        "pad_token_id": ids(EOS_TOKENS[0]),
        "eos_token_id": [ids(token) for token in EOS_TOKENS],
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
            "mrope_section": [4, 6, 6],
        },
    }
    vision = {
        "depth": 2,
        "hidden_size": 64,
        "num_heads": 2,
        "intermediate_size": 256,
        "out_hidden_size": HIDDEN,
        "patch_size": 14,
        "image_size": 336,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }
    config = Glm4vConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=ids("<|image|>"),
        video_token_id=ids("<|video|>"),
        image_start_token_id=ids("<|begin_of_image|>"),
        image_end_token_id=ids("<|end_of_image|>"),
        video_start_token_id=ids("<|begin_of_video|>"),
        video_end_token_id=ids("<|end_of_video|>"),
        tie_word_embeddings=False,
    )
    network: Any = Glm4vForConditionalGeneration
    model = network(config).train()
    with torch.no_grad():
        _scale_weights(model)
        _relate_words(model, tokenizer)
        _start_vision(model.model.visual)
        _start_lookups(model, tokenizer)
    return model


def _scale_weights(model: Any) -> None:
    for name, weight in model.named_parameters():
        if weight.dim() >= 2 and "embed" not in name and "lm_head" not in name:
            torch.nn.init.normal_(weight, std=weight[0].numel() ** -0.5)
    model.model.language_model.embed_tokens.weight.normal_(std=0.6)


def _relate_words(model: Any, tokenizer: PreTrainedTokenizerFast) -> None:
    """Neighbouring coordinates look alike; all words share one mark and colour words another."""
    words = model.model.language_model.embed_tokens.weight
    for axis in coordinate_ids(tokenizer):
        plain = torch.nn.functional.pad(words[axis].t(), (1, 1)).t()
        words[axis] = (plain[:-2] + 2 * plain[1:-1] + plain[2:]) / 6**0.5
    words += 0.3 * _mark(0)
    words[_colour_ids(tokenizer)] += 0.8 * _mark(1)
    # Reading a token and writing it start as nearly the same vector: copying is the easy path.
    model.lm_head.weight.copy_(words * (0.8 / HIDDEN**0.5))


def _mark(number: int) -> torch.Tensor:
    """A fixed direction of +-1: 0 is "a word, not an image token", 1 is "a colour word"."""
    return torch.randn(HIDDEN, generator=torch.Generator().manual_seed(1 + number)).sign()


def _colour_ids(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    return token_ids(tokenizer, [*COLOURS, *(" " + word for word in COLOURS.values())])


def _colour_rows(words: torch.Tensor, colours: list[int]) -> torch.Tensor:
    """Orthonormal rows that span what image tokens of a colour are trained to resemble."""
    both = words[colours[: len(COLOURS)]] + words[colours[len(COLOURS) :]]
    return torch.linalg.svd(both - both.mean(0), full_matrices=False)[2][: len(COLOURS) - 1]


def _start_vision(vision: Any) -> None:
    """Colour averages, smooth two-dimensional positions, and patches that attend to their like."""
    vision.merger.down_proj.weight.mul_(3)  # image tokens about as large as word embeddings
    filters = vision.patch_embed.proj.weight
    colour_count = filters.shape[0] * 3 // 4
    average = torch.randn(colour_count, 3, 1, 1, 1) / (2 * 196)
    filters[:colour_count] = average + filters[:colour_count] * 0.1
    vision.patch_embed.proj.bias.normal_()
    table = vision.embeddings.position_embedding.weight
    side = int(len(table) ** 0.5)
    steps = (torch.arange(side) + 0.5) / side
    frequencies = math.pi * torch.linspace(0.5, 6, table.shape[1] // 4)
    waves = [
        wave(axis.reshape(-1, 1) * frequencies)
        for axis in torch.meshgrid(steps, steps, indexing="ij")
        for wave in (torch.sin, torch.cos)
    ]
    table.copy_(0.6 * torch.cat(waves, 1))
    # Block 0 compares patches by everything but position: a button's patches find one another,
    # and the mean of their positions is the button's centre.
    qkv = vision.blocks[0].attn.qkv.weight
    width = qkv.shape[1]
    basis = torch.linalg.svd(table - table.mean(0), full_matrices=False)[2][: width * 5 // 8]
    blind = torch.eye(width) - basis.t() @ basis
    qkv[:width] = qkv[width : 2 * width] = torch.randn(width, width) @ blind * (2 * width**-0.5)


def _rows(count: int) -> torch.Tensor:
    """`count` orthonormal rows of HIDDEN dimensions: a subspace to write to and read from."""
    rows: torch.Tensor = torch.linalg.qr(torch.randn(HIDDEN, count))[0].t()
    return rows


def _start_lookups(model: Any, tokenizer: PreTrainedTokenizerFast) -> None:
    """Hand-made attention heads, which gradient descent then refines.

    Copying: layer 0 head 0 writes the previous token; layer 1 head 0 finds where the current token
    came before and reads what followed.
    Choosing a button: layer 0 head 1 lets a colour word look at the image tokens of its colour, and
    layer 1 head 1 passes on what it saw. Layer 1 head 2 lets every token look like the colour
    named last, and layer 2 head 1 looks at the image tokens of that colour.
    """
    layers = model.model.language_model.layers
    for layer, scale in zip(layers, (0.5, 1.0, 0.5, 0.2), strict=True):
        layer.post_self_attn_layernorm.weight.fill_(scale)
        layer.post_mlp_layernorm.weight.fill_(0.2)
    first, second, third = (layer.self_attn for layer in layers[:3])
    for attention, head in ((first, 0), (first, 1), (second, 0), (second, 1), (second, 2),
                            (third, 0), (third, 1)):  # fmt: skip
        part = slice(head * HEAD, (head + 1) * HEAD)
        attention.q_proj.weight[part] *= 0.1
        attention.k_proj.weight[part] *= 0.1
    words = model.model.language_model.embed_tokens.weight
    colours = _colour_rows(words, _colour_ids(tokenizer))
    token, previous, copied, seen, gathered = (_rows(HEAD) for _ in range(5))
    free = HEAD - ROTARY
    frequencies = 10000 ** (-torch.arange(0, ROTARY, 2) / ROTARY)[:6]
    first.q_proj.bias[0:12:2] = 8.0  # peaks where the rotation is that of one position
    first.k_proj.bias[0:12:2] = 8.0 * frequencies.cos()
    first.k_proj.bias[1:12:2] = 8.0 * frequencies.sin()
    _connect(first, 0, token, previous)
    second.q_proj.weight[ROTARY:HEAD] = 2 * token[:free]
    second.k_proj.weight[ROTARY:HEAD] = 2 * previous[:free]
    _connect(second, 0, copied, copied)
    for attention, read, write in ((first, seen, gathered), (third, seen, seen)):
        start = HEAD + ROTARY
        for projection in (attention.q_proj, attention.k_proj):
            projection.weight[start : start + len(colours)] = 1.5 * colours
        _prefer(attention, 1, -_mark(0))
        _connect(attention, 1, read, write)
    for head in (1, 2):
        _prefer(second, head, _mark(1))
    _connect(second, 1, gathered, seen)
    _connect(second, 2, torch.nn.functional.pad(colours, (0, 0, 0, HEAD - len(colours))), None)
    alike = _rows(HEAD)
    third.q_proj.weight[ROTARY:HEAD] = third.k_proj.weight[ROTARY:HEAD] = 1.5 * alike[:free]
    _connect(third, 0, alike, alike)
    third.o_proj.weight[:, 2 * HEAD :] *= 0.4
    first.o_proj.weight[:, 2 * HEAD :] *= 0.4


def _prefer(attention: Any, head: int, direction: torch.Tensor) -> None:
    """Let every query of a head favour keys along a direction, wherever they stand."""
    row = (head + 1) * HEAD - 1
    attention.q_proj.weight[row] = 0
    attention.q_proj.bias[row] = 10.0
    attention.k_proj.weight[row] = direction / HIDDEN**0.5


def _connect(attention: Any, head: int, read: torch.Tensor, write: torch.Tensor | None) -> None:
    """Let a head carry what it reads in one subspace to another, or (None) leave it in place."""
    part = slice(head * HEAD, (head + 1) * HEAD)
    attention.v_proj.weight[part] = read
    attention.o_proj.weight[:, part] = (read if write is None else write).t()
