"""A wider copy of the tiny model with an even number of heads, for two devices; it computes what the original does.

    python deploy/models/training/widen.py deploy/models/autoglm-phone-tiny OUT

Tensor parallelism gives each device whole heads, and the tiny model has three. The copy's hidden size is 256 instead of
192 and its fourth head is zero. A norm over more elements is made good in its weights: those stay float32, because
rounding them would move every logit.
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

OLD, NEW = 192, 256
SHRINK = (OLD / NEW) ** 0.5
"""Root of the share of elements that are not zero, by which a root mean square over all of them is smaller."""
COPIED = ("chat_template.jinja", "generation_config.json", "processor_config.json",
          "tokenizer.json", "tokenizer_config.json")  # fmt: skip


def widened(name: str, weight: torch.Tensor) -> torch.Tensor:
    """One weight, with zeros from 192 to 256 in every dimension that is the hidden size."""
    if name.endswith("merger.post_projection_norm.bias") or not _is_norm(name):
        wide = _padded(weight)
    else:
        wide = _padded(weight.float() * SHRINK)
    if name.endswith("merger.proj.weight"):
        # A LayerNorm subtracts the mean: the new outputs are the mean of the others, so that it stays what it was.
        wide = wide.float()
        wide[OLD:, :OLD] = weight.float().mean(0)
    return wide


def _is_norm(name: str) -> bool:
    language = "language_model" in name and "norm" in name
    return language or "merger.post_projection_norm" in name


def _padded(weight: torch.Tensor) -> torch.Tensor:
    shape = [NEW if size == OLD else size for size in weight.shape]
    wide = torch.zeros(shape, dtype=weight.dtype)
    wide[tuple(slice(size) for size in weight.shape)] = weight
    return wide


def widened_weights(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """All weights; the vision's fused query, key and value, 192 by accident, as they are."""
    return {
        name: weight if "attn.qkv" in name else widened(name, weight)
        for name, weight in weights.items()
    }


def widened_config(config: dict[str, object]) -> dict[str, object]:
    """config.json of the copy."""
    text, vision = dict(config["text_config"]), dict(config["vision_config"])  # type: ignore[call-overload]
    text.update(
        hidden_size=NEW,
        num_attention_heads=4,
        num_key_value_heads=4,
        rms_norm_eps=text["rms_norm_eps"] * OLD / NEW,
    )
    vision["out_hidden_size"] = NEW
    return {**config, "text_config": text, "vision_config": vision}


def main() -> None:
    """Read one folder and write the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        shutil.copyfile(options.model / name, options.out / name)
    config = json.loads((options.model / "config.json").read_text("utf-8"))
    text = json.dumps(widened_config(config), indent=2) + "\n"
    (options.out / "config.json").write_text(text, "utf-8")
    weights = widened_weights(load_file(options.model / "model.safetensors"))
    save_file(weights, options.out / "model.safetensors", {"format": "pt"})


if __name__ == "__main__":
    main()
