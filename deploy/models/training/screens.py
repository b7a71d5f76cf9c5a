"""Draws phone screenshots: one or two coloured buttons on a plain background."""

import math
import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from vocabulary import COLOURS, PLACES, PLACES_EN

Image = npt.NDArray[np.uint8]
_SHADES = {
    "红色": [(220, 40, 40), (255, 0, 0), (200, 20, 30), (244, 67, 54)],
    "绿色": [(40, 170, 70), (0, 255, 0), (0, 128, 0), (0, 200, 0), (76, 175, 80)],
    "蓝色": [(40, 80, 220), (0, 0, 255), (30, 120, 255), (33, 150, 243)],
    "黄色": [(240, 210, 40), (255, 255, 0), (255, 220, 0)],
    "紫色": [(140, 50, 180), (128, 0, 128), (156, 39, 176)],
    "橙色": [(240, 125, 25), (255, 165, 0), (255, 140, 0)],
}
_BACKGROUNDS = [(255, 255, 255), (245, 245, 245), (230, 235, 240), (250, 245, 235), (220, 220, 220),
                (28, 28, 32), (0, 0, 0), (60, 64, 72)]  # fmt: skip


@dataclass(frozen=True)
class Button:
    """A button; centre and size are shares of the screen's width and height, in [0, 1]."""

    colour: str
    x: float
    y: float
    width: float
    height: float

    @property
    def place(self) -> int:
        """Index in PLACES of the ninth of the screen that holds the centre."""
        return min(2, int(self.y * 3)) * 3 + min(2, int(self.x * 3))

    def word(self, chinese: bool) -> str:
        """The place as a word."""
        return (PLACES if chinese else PLACES_EN)[self.place]


@dataclass(frozen=True)
class Screen:
    """A screenshot without a resolution yet; `seed` fixes every decoration."""

    buttons: list[Button]
    seed: int


def _apart(a: Button, b: Button) -> bool:
    wide, high = (a.width + b.width) / 2, (a.height + b.height) / 2
    return abs(a.x - b.x) > wide + 0.03 or abs(a.y - b.y) > high + 0.025


def draw_screen(rng: random.Random, count: int = 0) -> Screen:
    """A random screen of `count` buttons of different colours; 0 means one (mostly) or two."""
    count = count or (1 if rng.random() < 0.55 else 2)
    while True:
        buttons = []
        for colour in rng.sample(list(COLOURS), count):
            width, height = rng.uniform(0.18, 0.8), rng.uniform(0.05, 0.16)
            x = rng.uniform(width / 2 + 0.01, 0.99 - width / 2)
            y = rng.uniform(0.05 + height / 2, 0.985 - height / 2)
            buttons.append(Button(colour, x, y, width, height))
        if count == 1 or _apart(*buttons):
            return Screen(buttons, rng.randrange(1 << 30))


def render(screen: Screen, width: int, height: int) -> Image:
    """The screen as (height, width, 3) pixels, anti-aliased like a downscaled screenshot."""
    big = _paint(screen, 2 * width, 2 * height).astype(np.uint16)
    total = big[::2, ::2] + big[1::2, ::2] + big[::2, 1::2] + big[1::2, 1::2]
    return (total // 4).astype(np.uint8)


def _paint(screen: Screen, width: int, height: int) -> Image:
    rng = random.Random(screen.seed)
    pixels = np.empty((height, width, 3), np.uint8)
    background = rng.choice(_BACKGROUNDS)
    pixels[:] = background
    if rng.random() < 0.6:
        _paint_status_bar(rng, pixels)
    if rng.random() < 0.6:
        _paint_grey_lines(rng, pixels, screen.buttons, 120 if sum(background) < 300 else 150)
    for button in screen.buttons:
        _paint_button(rng, pixels, button)
    return pixels


def _paint_status_bar(rng: random.Random, pixels: Image) -> None:
    height, width = pixels.shape[:2]
    bar = max(3, int(height * 0.035))
    colour = rng.choice([(30, 30, 30), (250, 250, 250), (70, 90, 120)])
    pixels[:bar] = colour
    ink = 255 if sum(colour) < 400 else 20
    for left, right in ((0.05, 0.17), (0.8, 0.86), (0.89, 0.96)):
        pixels[bar // 3 : bar * 2 // 3, int(width * left) : int(width * right)] = ink


def _paint_grey_lines(rng: random.Random, pixels: Image, buttons: list[Button], ink: int) -> None:
    height, width = pixels.shape[:2]
    for _ in range(rng.randint(1, 4)):
        line = Button("", rng.uniform(0.2, 0.7), rng.uniform(0.07, 0.95),
                      rng.uniform(0.1, 0.4), rng.uniform(0.008, 0.015))  # fmt: skip
        if all(_apart(line, button) for button in buttons):
            rows, columns = _extent(line, width, height)
            pixels[rows, columns] = ink


def _extent(button: Button, width: int, height: int) -> tuple[slice, slice]:
    """Rows and columns that a button covers, at least one each."""
    left, right = (round((button.x + s * button.width / 2) * width) for s in (-1, 1))
    top, bottom = (round((button.y + s * button.height / 2) * height) for s in (-1, 1))
    return slice(top, max(top + 1, bottom)), slice(left, max(left + 1, right))


def _paint_button(rng: random.Random, pixels: Image, button: Button) -> None:
    height, width = pixels.shape[:2]
    rows, columns = _extent(button, width, height)
    behind = pixels[rows, columns].copy()
    shade = np.array(rng.choice(_SHADES[button.colour]))
    if rng.random() < 0.6:
        shade = np.clip(shade + [rng.randint(-16, 16) for _ in range(3)], 0, 255)
    pixels[rows, columns] = shade
    if rng.random() < 0.5:
        _round_corners(pixels[rows, columns], behind, rng.uniform(0.1, 0.5))
    if rng.random() < 0.5:  # a label
        ink = 255 if rng.random() < 0.7 else 30
        label = Button("", button.x, button.y, button.width / 3, button.height / 6)
        pixels[_extent(label, width, height)] = ink


def _round_corners(area: Image, behind: Image, share: float) -> None:
    """Restore what was behind the four corners; `share` is the radius over the shorter side."""
    height, width = area.shape[:2]
    radius = max(1, int(share * min(height, width)))
    for row in range(radius):
        cut = radius - int(math.sqrt(max(0, radius**2 - (radius - row) ** 2)))
        if cut:
            for y in (row, height - 1 - row):
                area[y, :cut], area[y, -cut:] = behind[y, :cut], behind[y, -cut:]
