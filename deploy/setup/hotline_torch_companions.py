"""Lets torchvision and torchaudio be imported beside the CPU build of torch.

Their packages on PyPI are built for CUDA. Beside the CPU torch their compiled parts cannot be loaded, and their Python
code fails at import: torchvision because two operators have no schema ("operator torchvision::nms does not exist"),
torchaudio because it takes a library that is there but does not load for a broken installation. transformers and vLLM
import both, and use neither's compiled part for what is served here.

`make setup` puts this module and a .pth file that imports it into the environment. It imports torch only when somebody
imports one of the two, and changes nothing where their compiled parts load.
"""

import sys
from importlib.machinery import ModuleSpec, PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:  # this runs at every start of Python: import as little as can be
    from collections.abc import Callable, Sequence
    from types import ModuleType
    from typing import Any

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_kept: "list[Any]" = []  # a torch.library.Library takes its schemas with it


def _define_schemas(module: "ModuleType") -> None:
    """Before torchvision's own code runs."""
    from pathlib import Path

    import torch

    for extension in sorted(Path(module.__path__[0]).glob("_C*.so")):
        try:
            torch.ops.load_library(extension)
            return
        except OSError:
            break  # built for another torch
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in SCHEMAS:
        library.define(schema)
    _kept.append(library)


def _say_not_there(module: "ModuleType") -> None:
    """After torchaudio._extension.utils has run: a library that does not load counts as one that is not there."""
    load: Callable[[str], bool] = module._load_lib

    def load_or_not(name: str) -> bool:
        try:
            return load(name)
        except OSError:
            return False

    module._load_lib = load_or_not  # type: ignore[attr-defined]


def _nothing(module: "ModuleType") -> None:
    pass


_HOOKS = {
    "torchvision": (_define_schemas, _nothing),
    "torchaudio._extension.utils": (_nothing, _say_not_there),
}
"""Module: what to do before and after its code runs."""


class _Loader:
    """The module's own loader, with the hooks around it."""

    def __init__(self, inner: "Any", name: str) -> None:
        self._inner, self._name = inner, name

    def __getattr__(self, name: str) -> "Any":
        return getattr(self._inner, name)

    def exec_module(self, module: "ModuleType") -> None:
        before, after = _HOOKS[self._name]
        before(module)
        self._inner.exec_module(module)
        after(module)


class _Finder:
    """Finds the modules as Python would, and changes their loader."""

    @staticmethod
    def find_spec(
        name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> ModuleSpec | None:
        if name not in _HOOKS:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, name)
        return spec


sys.meta_path.insert(0, _Finder())
