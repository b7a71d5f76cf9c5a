"""Dense labels for image tokens: what each 28-pixel cell shows and where its button's centre is."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from network import HIDDEN, coordinate_ids, token_ids
from screens import Screen
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedTokenizerFast
from vocabulary import COLOURS, PLACES, grid_index

Labels = npt.NDArray[np.int64]
_IGNORED = -100
_NAMES = list(COLOURS)
_TIE = 0.06  # keeps logits of full-sized vectors within about ten


def cell_labels(screen: Screen, rows: int, columns: int) -> Labels:
    """(rows*columns, 4): 0 or 1 + colour, x and y index of the button's centre, its place."""
    labels = np.full((rows, columns, 4), _IGNORED, np.int64)
    labels[..., 0] = 0
    for button in screen.buttons:
        top, bottom = _covered(button.y, button.height, rows)
        left, right = _covered(button.x, button.width, columns)
        centre = grid_index(button.x), grid_index(button.y)
        labels[top:bottom, left:right] = (1 + _NAMES.index(button.colour), *centre, button.place)
    return labels.reshape(-1, 4)


def _covered(centre: float, size: float, cells: int) -> tuple[int, int]:
    """First and last + 1 of the cells whose middle the span covers; at least the centre's cell."""
    first = max(0, math.ceil((centre - size / 2) * cells - 0.5))
    last = min(cells - 1, math.floor((centre + size / 2) * cells - 0.5))
    if last < first:
        first = last = min(cells - 1, int(centre * cells))
    return first, last + 1


class CellHead:
    """Asks each image token to resemble the words that the language model will say about it.

    The red button's tokens shall look like the word "red", like "[500" and like "750]"; then
    attention finds them by the word, and the answer is copied from them. Training only.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.empty = nn.Linear(HIDDEN, 1)
        xs, ys = coordinate_ids(tokenizer)
        self._words = [token_ids(tokenizer, _NAMES), xs, ys, token_ids(tokenizer, PLACES)]
        self._english = token_ids(tokenizer, [" " + word for word in COLOURS.values()])

    def parameters(self) -> list[Tensor]:
        """What the optimizer has to train."""
        return list(self.empty.parameters())

    def __call__(
        self, tokens: Tensor, labels: Labels, embedding: Any
    ) -> tuple[Tensor, list[float]]:
        """Loss, and the share of right labels (colour, x, y, place) on the buttons' cells."""
        target = torch.from_numpy(labels)
        words = embedding.weight
        tokens = tokens.float()
        groups = [words[ids] for ids in self._words]
        groups[0] = groups[0] + words[self._english]
        logits = [_TIE * tokens @ (g - g.mean(0)).t() for g in groups]
        logits[0] = torch.cat((self.empty(tokens).float(), logits[0]), 1)
        weight = torch.ones(1 + len(_NAMES))
        weight[0] = 0.15  # most cells are empty
        loss = functional.cross_entropy(logits[0], target[:, 0], weight=weight)
        for i, share in ((1, 1.0), (2, 0.5), (3, 0.5)):  # x has the fewest pixels
            loss = loss + share * functional.cross_entropy(logits[i], target[:, i])
        shown = target[:, 0] > 0
        right = [
            (logits[i][shown].argmax(-1) == target[shown, i]).float().mean().item()
            for i in range(4)
        ]
        return loss, right
