"""Trains autoglm-phone-tiny from scratch on one CPU core.

usage: train.py OUT [--minutes N | --steps N] [--threads 1] [--seed 0] [--init CHECKPOINT]
Nothing is downloaded: tokenizer, dialogs and screenshots all follow from the seed. With --steps the
run is reproducible; with --minutes the learning rate follows the clock.
"""

import argparse
import contextlib
import copy
import ctypes
import json
import math
import os
import time
from pathlib import Path
from typing import Any

# Many shapes: a small cache of compiled oneDNN kernels keeps the process below 4 GiB.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")

import torch
from batches import MAX_IMAGE_TOKENS, Batch, Batcher
from forward import image_tokens, language_logits
from labels import CellHead
from network import make_model
from tokenizer import train_tokenizer
from torch import Tensor
from torch.nn import functional
from transformers import (
    GenerationConfig,
    Glm4vForConditionalGeneration,
    Glm4vImageProcessor,
    Glm4vProcessor,
    Glm4vVideoProcessor,
    PreTrainedTokenizerFast,
)
from vocabulary import CHAT_TEMPLATE

_VOCAB_SIZE = 3072
_LONG_EVERY = 4  # steps between two batches with a long system prompt
_SAVE_EVERY_S = 300.0


def losses(
    model: Any, head: CellHead, batch: Batch, image_id: int
) -> tuple[Tensor, Tensor | None, list[float]]:
    """Language loss, loss of the image cells (None without images), accuracies of the cells."""
    embedding = model.model.language_model.embed_tokens
    embedded = embedding(batch.ids)
    cell_loss, right = None, [0.0] * 4
    if batch.pixels is not None and batch.cells is not None:
        vision = image_tokens(model.model.visual, batch.pixels, batch.image_count, *batch.grid)
        where = (batch.ids == image_id)[..., None]
        embedded = embedded.masked_scatter(where, vision.to(embedded.dtype))
        cell_loss, right = head(vision, batch.cells, embedding)
    logits = language_logits(model, embedded, batch.positions, batch.bias, batch.selected)
    return functional.cross_entropy(logits.float(), batch.labels), cell_loss, right


def make_optimizer(model: Any, head: CellHead, rate: float) -> torch.optim.Optimizer:
    """AdamW; the patch filters see 1,176 correlated inputs and need far smaller steps."""
    filters = model.model.visual.patch_embed.proj.weight
    others = [p for p in [*model.parameters(), *head.parameters()] if p is not filters]
    groups: list[dict[str, Any]] = [
        {"params": [filters], "lr": rate * 0.03, "weight_decay": 0.0},
        {"params": [p for p in others if p.dim() >= 2], "lr": rate, "weight_decay": 0.05},
        {"params": [p for p in others if p.dim() < 2], "lr": rate, "weight_decay": 0.0},
    ]
    for group in groups:
        group["base"] = group["lr"]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98), fused=True)


def rate_scale(step: int, progress: float) -> float:
    """Warm up for 100 steps, hold until 30 % of the run, then a cosine to 1 %."""
    cosine = 0.5 * (1 + math.cos(math.pi * (progress - 0.3) / 0.7))
    return min(1.0, (step + 1) / 100) * (1.0 if progress < 0.3 else max(0.01, cosine))


def save(model: Any, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """Write a bf16 checkpoint that transformers and vLLM load."""
    half = copy.deepcopy(model).to(torch.bfloat16).eval()
    half.save_pretrained(out, safe_serialization=True)
    size = {"shortest_edge": 112 * 112, "longest_edge": 2 * 28 * 28 * MAX_IMAGE_TOKENS}
    make_processor: Any = Glm4vProcessor
    processor = make_processor(
        image_processor=Glm4vImageProcessor(size=size),
        tokenizer=tokenizer,
        video_processor=Glm4vVideoProcessor(size=size),
        chat_template=CHAT_TEMPLATE,
    )
    processor.save_pretrained(out)
    tokenizer.save_pretrained(out)
    text = model.config.text_config
    generation: Any = GenerationConfig
    generation(
        do_sample=False, eos_token_id=text.eos_token_id, pad_token_id=text.pad_token_id
    ).save_pretrained(out)
    path = out / "tokenizer.json"
    compact = json.dumps(json.loads(path.read_text()), ensure_ascii=False, separators=(",", ":"))
    path.write_text(compact)


class Log:
    """Running means of the losses, printed every hundred steps."""

    def __init__(self) -> None:
        self._means: dict[str, float] = {}

    def add(self, **values: float) -> None:
        """Blend new values in."""
        for name, value in values.items():
            self._means[name] = 0.95 * self._means.get(name, value) + 0.05 * value

    def show(self, step: int, seconds: float, token_count: int) -> None:
        """Print one line."""
        means = " ".join(f"{name} {value:.3f}" for name, value in self._means.items())
        print(f"{step} {seconds:.0f}s {means} tok/s {token_count / seconds:.0f}", flush=True)


def train(model: Any, tokenizer: PreTrainedTokenizerFast, args: argparse.Namespace) -> None:
    """The loop; one step is a batch of text, one of screens, and at times a long one."""
    head = CellHead(tokenizer)
    optimizer = make_optimizer(model, head, args.rate)
    batcher = Batcher(tokenizer, args.seed, args.tokens)
    log, began, saved, step, token_count = Log(), time.monotonic(), time.monotonic(), 0, 0
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while True:
        seconds = time.monotonic() - began
        progress = step / args.steps if args.steps else seconds / (args.minutes * 60)
        if progress >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = group["base"] * rate_scale(step, progress)
        batches = {"text": batcher.text(progress), "screen": batcher.screens(progress)}
        if progress > 0.1 and step % _LONG_EVERY == 0:
            batches["long"] = batcher.long()
        for name, batch in batches.items():
            token_count += batch.ids.numel()
            with torch.autocast("cpu", torch.bfloat16):
                loss, cell_loss, right = losses(model, head, batch, batcher.image_id)
            log.add(**{name: loss.item()})
            if cell_loss is not None:
                weight = 1.0 if progress < 0.15 else 0.5 if progress < 0.6 else 0.2
                loss = loss + weight * cell_loss
                log.add(cells=cell_loss.item(), colour=right[0], x=right[1], y=right[2])
                log.add(place=right[3])
            torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step % 25 == 0 and trim is not None:
            trim(0)  # glibc keeps the freed blocks of every shape otherwise
        if step % 100 == 0:
            log.show(step, time.monotonic() - began, token_count)
        if time.monotonic() - saved > _SAVE_EVERY_S:
            save(model, tokenizer, args.out.with_name(args.out.name + ".partial"))
            saved = time.monotonic()
    print(f"{step} steps, {time.monotonic() - began:.0f} s, {token_count} tokens", flush=True)


def main() -> None:
    """Parse the command line, train, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=50)
    parser.add_argument("--steps", type=int, default=0, help="instead of --minutes")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--tokens", type=int, default=1024, help="tokens of a text batch")
    parser.add_argument("--init", type=Path, help="checkpoint to go on from")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    if args.init:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(args.init)
        model = Glm4vForConditionalGeneration.from_pretrained(args.init, dtype=torch.float32)
        model.train()
    else:
        tokenizer = train_tokenizer(_VOCAB_SIZE, args.seed)
        model = make_model(tokenizer)
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    with contextlib.suppress(KeyboardInterrupt):  # an interrupted run is saved as it stands
        train(model, tokenizer, args)
    save(model, tokenizer, args.out)


if __name__ == "__main__":
    main()
