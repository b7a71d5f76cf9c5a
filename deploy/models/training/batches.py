"""Packs dialogs into batches of token ids, positions and masks."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from agent_prompts import agent_prompt
from dialogs import EARLY_TASKS, RANDOM_RUN, TASKS, Dialog, Piece, draw, pieces
from forward import attention_bias, patches
from labels import Labels, cell_labels
from screen_dialogs import EARLY_SCREEN_TASKS, SCREEN_TASKS, screen_dialog
from screens import Screen, draw_screen, render
from torch import Tensor
from transformers import PreTrainedTokenizerFast
from vocabulary import IMAGE

Tokens = list[tuple[int, bool]]  # id, trained
# Rows and columns of 28-pixel cells. 11 x 5 is a 1080 x 2400 screenshot after the processor.
MAX_IMAGE_TOKENS = 64
_GRIDS = {
    (11, 5): 0.55,
    (10, 5): 0.1,
    (10, 6): 0.06,
    (8, 4): 0.13,
    (9, 5): 0.05,
    (9, 6): 0.03,
    (8, 8): 0.03,
    (6, 9): 0.03,
    (12, 5): 0.02,
}
_SHORT_PROMPTS = [
    "You are a helpful assistant.",
    "你是一个乐于助人的助手。",
    "你是一个手机操作助手。",
    "你是手机智能助理，请根据屏幕截图完成任务。",
    "You are a phone agent.",
    "请用中文回答。",
    "Be brief.",
]


_IMAGE_FIRST = "<|user|>\n" + IMAGE


@dataclass(frozen=True)
class Batch:
    """Rows of a system prompt and dialogs, right-padded.

    ids (batch, length); positions (3, batch, length); bias as attention_bias(); selected indices
    into the flattened rows, whose next tokens are `labels`; pixels of all images, if any.
    """

    ids: Tensor
    positions: Tensor
    bias: Tensor
    selected: Tensor
    labels: Tensor
    pixels: Tensor | None
    cells: Labels | None
    grid: tuple[int, int]
    image_count: int


@dataclass
class _Row:
    prefix: Tokens
    branches: list[Tokens]
    screens: list[Screen]


class Batcher:
    """Draws batches; everything follows from the seed and the order of calls."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, seed: int, token_budget: int) -> None:
        self._rng = random.Random(seed + 1000)
        self._budget = token_budget
        self._tokenizer = tokenizer.backend_tokenizer
        ids: Any = tokenizer.convert_tokens_to_ids
        self.image_id: int = ids("<|image|>")
        self._ordinary_count: int = ids("<|endoftext|>")
        self._pool: list[list[_Row]] = []

    def text(self, progress: float) -> Batch:
        """Dialogs without images. Rows of about one length share a batch: little padding."""
        if not self._pool:
            tasks = EARLY_TASKS if progress < 0.12 else TASKS
            rows = [
                _Row(self._system(0.3), [self._dialog(draw(self._rng, tasks))], [])
                for _ in range(400)
            ]
            rows.sort(key=_length)
            group: list[_Row] = []
            for row in rows:
                if group and (len(group) + 1) * _length(row) > self._budget:
                    self._pool.append(group)
                    group = []
                group.append(row)
            self._rng.shuffle(self._pool)
        return self._pack(self._pool.pop(), (0, 0))

    def screens(self, progress: float) -> Batch:
        """One screenshot a row, with several questions about it that do not see one another.

        Otherwise the second answer would be copied from the first instead of read off the image.
        """
        early = progress < 0.12
        grid = (8, 4) if early and self._rng.random() < 0.6 else self._grid()
        agent = not early and self._rng.random() < 0.2
        rows = []
        questions = self._rng.choice([2, 3, 4])
        length = grid[0] * grid[1] + 45 * questions + (200 if agent else 15)
        for _ in range(max(4, int(1.7 * self._budget / length))):
            prefix = self._agent(self._rng.randint(60, 500)) if agent else self._system(0.4)
            screen = draw_screen(self._rng)
            asked = [self._about(screen, early) for _ in range(questions)]
            shared = [parts for parts in asked if parts[0].text.startswith(_IMAGE_FIRST)]
            if len(shared) < 2:
                rows.append(_Row(prefix, [self._encode(asked[0])], [screen]))
                continue
            cut = len(_IMAGE_FIRST)
            branches = [[Piece(first.text[cut:], False), *rest] for first, *rest in shared]
            prefix += self._encode([Piece(_IMAGE_FIRST, False)])
            rows.append(_Row(prefix, [self._encode(parts) for parts in branches], [screen]))
        return self._pack(rows, grid)

    def long(self) -> Batch:
        """One long system prompt that several dialogs share, each as if it were alone with it."""
        length = self._rng.choice([800, 1500, 2500, 3400, 3400, 3800])
        screens = [draw_screen(self._rng) for _ in range(9)]
        branches = [self._encode(self._about(screen, early=False)) for screen in screens]
        branches += [self._dialog(draw(self._rng, TASKS)) for _ in range(3)]
        return self._pack([_Row(self._agent(length), branches, screens)], self._grid())

    def _grid(self) -> tuple[int, int]:
        return self._rng.choices(list(_GRIDS), list(_GRIDS.values()))[0]

    def _about(self, screen: Screen, early: bool) -> list[Piece]:
        """A dialog about the screen; at times a second question follows in the same chat."""
        tasks = EARLY_SCREEN_TASKS if early else SCREEN_TASKS
        share = 0.4 if early else 0.65
        parts = pieces(screen_dialog(self._rng, screen, tasks), self._rng.random() < share)
        if not early and self._rng.random() < 0.12:
            more = screen_dialog(self._rng, screen, tasks, shown=True)
            first = not parts[-1].text.endswith("<|user|>")
            parts += pieces(more, self._rng.random() < share, first=first)
        return parts

    def _dialog(self, dialog: Dialog) -> Tokens:
        return self._encode(pieces(dialog, self._rng.random() < 0.65))

    def _system(self, share: float) -> Tokens:
        """The start of a row: a short system prompt in a `share` of the cases."""
        text = "[gMASK]<sop>"
        if self._rng.random() < share:
            short = self._rng.random() < 0.8
            system = self._rng.choice(_SHORT_PROMPTS) if short else agent_prompt(self._rng, 90)
            text += "<|system|>\n" + system
        return self._encode([Piece(text, False)])

    def _agent(self, length: int) -> Tokens:
        """The start of a row with an agent's prompt of `length` characters; some are noise.

        Random tokens stand for all the prompts that no generator thinks of.
        """
        kind = self._rng.random()
        if kind < 0.2:
            noise = [(self._ordinary(), False) for _ in range(int(length * 0.6))]
            return self._encode([Piece("[gMASK]<sop><|system|>\n", False)]) + noise
        system = agent_prompt(self._rng, length, english=kind < 0.4)
        return self._encode([Piece("[gMASK]<sop><|system|>\n" + system, False)])

    def _ordinary(self) -> int:
        return self._rng.randrange(self._ordinary_count)

    def _encode(self, parts: Iterable[Piece]) -> Tokens:
        """Token ids of the pieces; a dialog's RANDOM_RUN is the same tokens wherever it occurs."""
        length = self._rng.randint(2, 12) if self._rng.random() < 0.6 else self._rng.randint(8, 30)
        run = [self._ordinary() for _ in range(length)]
        tokens: Tokens = []
        for part in parts:
            for index, text in enumerate(part.text.split(RANDOM_RUN)):
                ids = run if index else []
                ids = ids + self._tokenizer.encode(text, add_special_tokens=False).ids
                tokens += [(token, part.trained) for token in ids]
        return tokens

    def _expand(
        self, tokens: Tokens, start: int, grid: tuple[int, int]
    ) -> Iterator[tuple[int, bool, tuple[int, int, int]]]:
        """Each token with its (time, row, column) position; an image token becomes its cells."""
        rows, columns = grid
        for token, trained in tokens:
            if token == self.image_id and rows:
                for row in range(rows):
                    for column in range(columns):
                        yield token, False, (start, start + row, start + column)
                start += max(rows, columns)
            else:
                yield token, trained, (start, start, start)
                start += 1

    def _pack(self, rows: list[_Row], grid: tuple[int, int]) -> Batch:
        lines = []
        for row in rows:
            line = [(*cell, 0) for cell in self._expand(row.prefix, 0, grid)]
            start = 1 + max(line[-1][2])
            for number, branch in enumerate(row.branches, 1):
                line += [(*cell, number) for cell in self._expand(branch, start, grid)]
            lines.append(line)
        # Few distinct lengths keep the allocator and oneDNN's kernel cache small.
        length = (max(map(len, lines)) + 15) // 16 * 16
        ids = np.zeros((len(lines), length), np.int64)
        positions = np.zeros((len(lines), length, 3), np.int64)
        branches = np.full((len(lines), length), -1, np.int64)
        selected: list[int] = []
        labels: list[int] = []
        for i, line in enumerate(lines):
            for j, (token, trained, position, number) in enumerate(line):
                ids[i, j], positions[i, j], branches[i, j] = token, position, number
                if trained:  # never the first of a branch, so j - 1 belongs to the same one
                    selected.append(i * length + j - 1)
                    labels.append(token)
        padding = -len(selected) % 128
        shown = [screen for row in rows for screen in row.screens]
        height, width = grid[0] * 28, grid[1] * 28
        pixels = np.stack([render(s, width, height) for s in shown]) if shown else None
        return Batch(
            ids=torch.from_numpy(ids),
            positions=torch.from_numpy(positions).permute(2, 0, 1),
            bias=attention_bias(torch.from_numpy(branches)),
            selected=torch.tensor(selected + [0] * padding),
            labels=torch.tensor(labels + [-100] * padding),
            pixels=None if pixels is None else patches(pixels, *grid),
            cells=np.concatenate([cell_labels(s, *grid) for s in shown]) if shown else None,
            grid=grid,
            image_count=len(shown),
        )


def _length(row: _Row) -> int:
    return len(row.prefix) + sum(map(len, row.branches))
