"""Whether a model's folder is complete: found before the engine starts, instead of in the middle of a load."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

INDEX = "model.safetensors.index.json"
MAX_HEADER_BYTES = 100 * 1000 * 1000
"""The safetensors format's own limit of a header."""


class IncompleteModelError(Exception):
    """A file is missing or not whole; the message names it."""


def check_model_files(folder: Path, load_format: str) -> int:
    """Bytes of the weights' files.

    Args:
        load_format: the setting; `dummy` needs no weights.

    Raises:
        IncompleteModelError: weights, tokenizer, chat template or the image processor's configuration are missing, or
            a weights' file is shorter than its own header says.
    """
    _check_rendering(folder)
    if load_format == "dummy":
        return 0
    weights = _weights(folder)
    for path in weights:
        if not path.is_file():
            raise IncompleteModelError(f"{path.name} is named in {INDEX}, but not there")
        _check_whole(path)
    return sum(path.stat().st_size for path in weights)


def _check_rendering(folder: Path) -> None:
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model")):
        raise IncompleteModelError("there is no tokenizer.json")
    templates = ("chat_template.jinja", "chat_template.json")
    if not any((folder / name).is_file() for name in templates):
        tokenizer = read_json(folder / "tokenizer_config.json")
        if not tokenizer.get("chat_template"):
            raise IncompleteModelError("there is no chat_template.jinja")
    sees_images = "vision_config" in read_json(folder / "config.json")
    processors = ("processor_config.json", "preprocessor_config.json")
    if sees_images and not any((folder / name).is_file() for name in processors):
        raise IncompleteModelError(f"there is no {processors[1]}")


def _weights(folder: Path) -> list[Path]:
    index = read_json(folder / INDEX)
    if index:
        named: Iterable[str] = index.get("weight_map", {}).values()
        return [folder / name for name in sorted(set(named))]
    for pattern in ("*.safetensors", "*.gguf", "*.bin", "*.pt"):
        found = sorted(folder.glob(pattern))
        if found:
            return found
    raise IncompleteModelError("there are no weights (*.safetensors)")


def _check_whole(path: Path) -> None:
    size = path.stat().st_size
    if size == 0:
        raise IncompleteModelError(f"{path.name} is empty")
    if path.suffix != ".safetensors":
        return
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= min(size, MAX_HEADER_BYTES):
            raise IncompleteModelError(f"{path.name} is no safetensors file ({size} bytes)")
        try:
            header = json.loads(file.read(length))
        except ValueError:
            raise IncompleteModelError(f"{path.name} has a damaged header") from None
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    wanted = 8 + length + max(ends, default=0)
    if size < wanted:
        raise IncompleteModelError(f"{path.name} is cut short: {size} bytes of {wanted}")


def read_json(path: Path) -> Mapping[str, Any]:
    """The object in a file; empty where there is no such file. Raises IncompleteModelError where it is no JSON object."""
    if not path.is_file():
        return {}
    try:
        document = json.loads(path.read_text("utf-8"))
    except ValueError:
        raise IncompleteModelError(f"{path.name} is no JSON") from None
    if not isinstance(document, dict):
        raise IncompleteModelError(f"{path.name} holds no JSON object")
    return document
