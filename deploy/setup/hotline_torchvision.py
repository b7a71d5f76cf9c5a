"""Lets torchvision be imported beside the CPU build of torch.

torchvision's compiled operators cannot be loaded there, and its Python code then fails at import, because two operators
have no schema ("operator torchvision::nms does not exist"). Nobody here calls them: images are resized by transformers.
`make setup` puts this module and a .pth file that imports it into the environment; it imports torch only when somebody
imports torchvision, and does nothing where torchvision's own operators load.
"""

import sys
from importlib.machinery import ModuleSpec, PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:  # this runs at every start of Python: import as little as can be
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_kept: "list[Any]" = []  # a torch.library.Library takes its schemas with it


def _define_missing(package: str) -> None:
    from pathlib import Path

    import torch

    for extension in sorted(Path(package).glob("_C*.so")):
        try:
            torch.ops.load_library(extension)
            return
        except OSError:
            break  # built for another torch
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in SCHEMAS:
        library.define(schema)
    _kept.append(library)


class _Loader:
    """torchvision's own loader, with the schemas defined first."""

    def __init__(self, inner: "Any", package: str) -> None:
        self._inner, self._package = inner, package

    def __getattr__(self, name: str) -> "Any":
        return getattr(self._inner, name)

    def exec_module(self, module: "ModuleType") -> None:
        if not _kept:
            _define_missing(self._package)
        self._inner.exec_module(module)


class _Finder:
    """Finds torchvision as Python would, and changes its loader."""

    @staticmethod
    def find_spec(
        name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> ModuleSpec | None:
        if name != "torchvision":
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.submodule_search_locations:
            spec.loader = _Loader(spec.loader, next(iter(spec.submodule_search_locations)))
        return spec


sys.meta_path.insert(0, _Finder())
