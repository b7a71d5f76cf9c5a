"""Reading a model's folder; the one module that loads it.

What renders needs transformers and torch, which take seconds and hundreds of MiB; what only detokenises does not.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Vocabulary:
    """What turns a model's ids into text."""

    backend: Any
    """tokenizers.Tokenizer."""
    vocabulary_size: int
    """Token ids are below this, also those that the tokenizer does not know."""
    control: dict[str, int]
    """Spelling -> id of every added token but blank ones and single characters: what text must not spell."""
    special_ids: frozenset[int]
    """Ids that decoding leaves out."""
    end_ids: frozenset[int]
    """Ids that end a generation."""


@dataclass(frozen=True)
class ModelFolder(Vocabulary):
    """What the tokenizer service needs of a model."""

    image_processor: Any | None
    """transformers image processor; None where the model sees no images."""
    image_token_id: int | None
    chat_template: str


def load_vocabulary(path: Path) -> Vocabulary:
    """Load the tokenizer alone, as `load` would: in milliseconds, with neither transformers nor torch.

    Raises ValueError where the folder lacks something or where only transformers could read it, OSError where it
    cannot be read.
    """
    from tokenizers import Tokenizer

    file = path / "tokenizer.json"
    if not file.is_file():
        raise ValueError(f"{path.name} has no tokenizer.json")
    backend = Tokenizer.from_str(file.read_text(encoding="utf-8"))
    config_file = path / "tokenizer_config.json"
    config = _json(config_file) if config_file.exists() else {}
    # transformers adds what stands here only; without it such ids would have no text.
    known = backend.get_added_tokens_decoder()
    missing = [key for key in config.get("added_tokens_decoder", {}) if int(key) not in known]
    if missing:
        raise ValueError(
            f"{path.name}: tokenizer.json lacks the added tokens {', '.join(missing[:8])} of tokenizer_config.json; "
            "a tokenizer process that has the role render as well can read it"
        )
    end = config.get("eos_token")
    spelling = end.get("content", "") if isinstance(end, dict) else end or ""
    return Vocabulary(*_vocabulary(path, backend, backend.token_to_id(spelling)))


def load(path: Path) -> ModelFolder:
    """Load tokenizer, processor and template; local files only, no code of the model's.

    Takes seconds and imports torch. Raises ValueError where the folder lacks something, OSError where it cannot
    be read.
    """
    import torch
    from transformers import AutoProcessor

    torch.set_num_threads(1)  # renders run side by side already
    processor = AutoProcessor.from_pretrained(
        str(path), local_files_only=True, trust_remote_code=False
    )
    tokenizer = getattr(processor, "tokenizer", processor)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ValueError(f"{path.name} has no tokenizer.json")
    template = getattr(processor, "chat_template", None) or tokenizer.chat_template
    if not isinstance(template, str):
        raise ValueError(f"{path.name} has no single chat template")
    image_processor = getattr(processor, "image_processor", None)
    return ModelFolder(
        *_vocabulary(path, backend, tokenizer.eos_token_id),
        image_processor=image_processor,
        image_token_id=getattr(processor, "image_token_id", None) if image_processor else None,
        chat_template=template,
    )


def _vocabulary(
    path: Path, backend: Any, tokenizer_end: int | None
) -> tuple[Any, int, dict[str, int], frozenset[int], frozenset[int]]:
    """The fields of a Vocabulary."""
    added: dict[int, Any] = backend.get_added_tokens_decoder()
    config = _json(path / "config.json")
    size = config.get("text_config", config).get("vocab_size", 0)
    control = {
        token.content: token_id
        for token_id, token in added.items()
        if len(token.content) > 1 and token.content.strip()
    }
    return (
        backend,
        max(size, backend.get_vocab_size(with_added_tokens=True)),
        control,
        frozenset(token_id for token_id, token in added.items() if token.special),
        _end_ids(path, config, tokenizer_end),
    )


def _end_ids(path: Path, config: dict[str, Any], tokenizer_end: int | None) -> frozenset[int]:
    generation = path / "generation_config.json"
    sources: Collection[Any] = (
        _json(generation).get("eos_token_id") if generation.exists() else None,
        config.get("text_config", config).get("eos_token_id"),
        tokenizer_end,
    )
    found: Any = next((ids for ids in sources if ids is not None), [])
    return frozenset(found if isinstance(found, list) else [found])


def _json(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content
